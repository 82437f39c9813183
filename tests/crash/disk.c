/* A disk for power.py: one file, "image", of a FUSE file system of its own, kept in memory; every write and flush is recorded in the
   order in which it was done. A flush makes durable what was written before it.

     disk FOLDER BYTES RECORD COUNTER [IMAGE]

   RECORD: for each write its offset and length (64 bits each) and the data, for each flush 2^64 - 1 and 0.
   COUNTER: how many of both were recorded, for those who map it.
   IMAGE: what the disk holds at first; the file is not changed. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROOT = 1, IMAGE = 2, WRITE_MAX = 1 << 20 };

static int device;
static uint64_t size;

static void reply(const struct fuse_in_header *to, int error, const void *data, size_t length)
{
  struct fuse_out_header header = {sizeof header + length, -error, to->unique};
  struct iovec parts[2] = {{&header, sizeof header}, {(void *) data, length}};
  if (writev(device, parts, 2) < 0 && errno != ENOENT)
    perror("disk: reply");
}

static struct fuse_attr attributes(uint64_t node)
{
  uint64_t bytes= node == ROOT ? 0 : size;
  return (struct fuse_attr) {.ino= node, .nlink= 1, .mode= node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0644, .size= bytes,
                             .blocks= bytes / 512, .blksize= 4096};
}

static void fail(const char *what)
{
  perror(what);
  exit(1);
}

int main(int argc, char **argv)
{
  if (argc < 5)
    return 2;
  size= strtoull(argv[2], NULL, 10);
  FILE *record= fopen(argv[3], "wb");
  int counter= open(argv[4], O_RDWR | O_CREAT | O_TRUNC, 0644), image= argc > 5 ? open(argv[5], O_RDONLY) : -1;
  if (!record || counter < 0 || ftruncate(counter, 4096) || (argc > 5 && image < 0))
    fail("disk: files");
  volatile uint64_t *count= mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, counter, 0);
  char *disk= mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | (image < 0 ? MAP_ANONYMOUS : 0), image, 0);
  if (count == MAP_FAILED || disk == MAP_FAILED)
    fail("disk: memory");

  device= open("/dev/fuse", O_RDWR);
  char options[100];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
  if (device < 0 || mount("disk", argv[1], "fuse", MS_NOSUID | MS_NODEV, options))
    fail("disk: mount");

  size_t room= WRITE_MAX + (1 << 16);
  char *request= malloc(room);
  for (;;)
  {
    if (read(device, request, room) < 0)
    {
      if (errno == EINTR || errno == EAGAIN || errno == ENOENT)
        continue;
      break;                                    /* unmounted */
    }
    struct fuse_in_header *in= (void *) request;
    void *what= in + 1;
    switch (in->opcode) {
    case FUSE_INIT:
    {
      struct fuse_init_in *init= what;
      struct fuse_init_out out= {.major= FUSE_KERNEL_VERSION, .minor= init->minor < FUSE_KERNEL_MINOR_VERSION ? init->minor : FUSE_KERNEL_MINOR_VERSION,
                                 .max_readahead= init->max_readahead, .max_write= WRITE_MAX, .max_pages= WRITE_MAX / 4096,
                                 .max_background= 64, .congestion_threshold= 48, .time_gran= 1,
                                 .flags= init->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES)};
      reply(in, 0, &out, sizeof out);
      break;
    }
    case FUSE_LOOKUP:
    {
      struct fuse_entry_out out= {.nodeid= IMAGE, .attr_valid= 3600, .entry_valid= 3600, .attr= attributes(IMAGE)};
      int found= in->nodeid == ROOT && strcmp(what, "image") == 0;
      reply(in, found ? 0 : ENOENT, &out, found ? sizeof out : 0);
      break;
    }
    case FUSE_GETATTR:
    case FUSE_SETATTR:
    {
      struct fuse_attr_out out= {.attr_valid= 3600, .attr= attributes(in->nodeid)};
      reply(in, 0, &out, sizeof out);
      break;
    }
    case FUSE_OPEN:
    {
      struct fuse_open_out out= {.open_flags= FOPEN_KEEP_CACHE};
      reply(in, 0, &out, sizeof out);
      break;
    }
    case FUSE_READ:
    {
      struct fuse_read_in *from= what;
      uint64_t at= from->offset < size ? from->offset : size;
      reply(in, 0, disk + at, from->size < size - at ? from->size : size - at);
      break;
    }
    case FUSE_WRITE:
    {
      struct fuse_write_in *to= what;
      struct fuse_write_out out= {.size= to->size};
      uint64_t head[2]= {to->offset, to->size};
      if (to->offset > size || to->size > size - to->offset)
      {
        reply(in, ENOSPC, NULL, 0);
        break;
      }
      memcpy(disk + to->offset, to + 1, to->size);
      fwrite(head, sizeof head, 1, record);
      fwrite(to + 1, to->size, 1, record);
      ++*count;
      reply(in, 0, &out, sizeof out);
      break;
    }
    case FUSE_FSYNC:
    {
      uint64_t head[2]= {UINT64_MAX, 0};
      fwrite(head, sizeof head, 1, record);
      ++*count;
      reply(in, 0, NULL, 0);
      break;
    }
    case FUSE_FLUSH:
    case FUSE_RELEASE:
      reply(in, 0, NULL, 0);
      break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      break;
    default:
      reply(in, ENOSYS, NULL, 0);
    }
  }
  if (fclose(record))
    fail("disk: record");
  return 0;
}
