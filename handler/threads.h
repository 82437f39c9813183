/* The engine's own threads, as the server lists them. */
#ifndef MYRIAD_THREADS_H
#define MYRIAD_THREADS_H

void myriad_thread_begins(const char *duty);
void myriad_thread_ends();

#endif
