//! Limits. A limit on everything; units last.

/// Smallest page size in bytes.
pub const PAGE_SIZE_MIN: usize = 4 << 10;
/// Largest page size in bytes.
pub const PAGE_SIZE_MAX: usize = 64 << 10;
/// Page size of a new data directory unless another is asked for, in bytes.
pub const PAGE_SIZE_DEFAULT: usize = 16 << 10;
/// Pages of an extent.
pub const EXTENT_PAGES: u32 = 64;
/// Largest single value (row) in bytes, as MariaDB's LONGBLOB.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;
/// Bytes that a checkpoint can carry along in the log's header: its payload.
pub const CHECKPOINT_BYTES_MAX: usize = 1024;
/// Of these, the bytes in front that are the buffer pool's.
pub const CHECKPOINT_FRONT_BYTES: usize = 9;

/// Most bytes that the columns of a key declared by a user have together, on pages of `page_size` bytes: InnoDB's limits.
pub const fn key_columns_bytes_max(page_size: usize) -> usize {
    if page_size >= 16 << 10 {
        3072
    } else {
        page_size * 3 / 16
    }
}

/// Longest key in bytes, index id included, on pages of `page_size` bytes: two fences and two entries must fit a page.
///
/// 3,584 bytes at 16 KiB: [`key_columns_bytes_max`], and room for the primary key's that follow them.
pub const fn key_bytes_max(page_size: usize) -> usize {
    if page_size >= 32 << 10 {
        7 << 10
    } else {
        page_size * 7 / 32
    }
}
