//! Identifiers. A newtype for each, so that no bare integer travels between rooms.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// A tablespace: one file. Never reused within a data directory.
    SpaceId,
    u32
);
id!(
    /// A page's number inside its tablespace; page 0 is the header.
    PageNo,
    u32
);
id!(
    /// An index. The first four bytes (big endian) of each of its keys. Never reused.
    IndexId,
    u32
);
id!(
    /// A table: the id of its clustered index.
    TableId,
    u32
);
id!(
    /// An interned table definition.
    ShapeId,
    u32
);
id!(
    /// A read-write transaction, in order of its first change. 0 means "older than everything".
    TrxId,
    u64
);
id!(
    /// A position in the log, in bytes since the data directory was created.
    Lsn,
    u64
);
id!(
    /// Commit sequence number. A snapshot is one of these.
    Csn,
    u64
);
id!(
    /// Where an older version lives: undo page number (high 32 bits) and byte offset in it (low 16 bits); 48 bits in all.
    /// 0 means "no older version".
    RollPtr,
    u64
);

impl SpaceId {
    /// The catalog's tablespace.
    pub const SYSTEM: SpaceId = SpaceId(0);
    /// The undo tablespace.
    pub const UNDO: SpaceId = SpaceId(1);
    /// The tablespace of in-memory tables: its pages are in the buffer pool alone, in no file and not in the log. Made anew
    /// at every start.
    pub const MEMORY: SpaceId = SpaceId(2);
    /// First id given to a user tablespace.
    pub const FIRST_USER: SpaceId = SpaceId(16);
}

impl RollPtr {
    /// No older version: the record was inserted by its `TrxId`.
    pub const NONE: RollPtr = RollPtr(0);

    /// A pointer to `offset` within undo page `page`.
    pub fn new(page: PageNo, offset: u16) -> RollPtr {
        RollPtr(u64::from(page.0) << 16 | u64::from(offset))
    }

    /// The undo page.
    pub fn page(self) -> PageNo {
        PageNo((self.0 >> 16) as u32)
    }

    /// The byte offset in the undo page.
    pub fn offset(self) -> u16 {
        self.0 as u16
    }

    /// Whether there is no older version.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl PageNo {
    /// Marks "no page" in links.
    pub const NONE: PageNo = PageNo(u32::MAX);
}

/// A page's global name: tablespace and page number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// Tablespace.
    pub space: SpaceId,
    /// Page within it.
    pub page: PageNo,
}

impl PageId {
    /// Whether it is a page of an in-memory table.
    #[inline]
    pub const fn is_in_memory(self) -> bool {
        self.space.0 == SpaceId::MEMORY.0
    }

    /// Joins the two.
    pub const fn new(space: SpaceId, page: PageNo) -> PageId {
        PageId { space, page }
    }

    /// One integer, ordered by space, then page.
    pub const fn to_u64(self) -> u64 {
        (self.space.0 as u64) << 32 | self.page.0 as u64
    }

    /// The reverse of [`PageId::to_u64`].
    pub const fn from_u64(v: u64) -> PageId {
        PageId { space: SpaceId((v >> 32) as u32), page: PageNo(v as u32) }
    }

    /// A well-mixed hash, the same for all pages of a 64-page extent when `extent` is taken.
    pub fn hash(self) -> u64 {
        mix(self.to_u64())
    }

    /// A hash that pages of one 64-page extent share: it names their buffer pool partition.
    pub fn extent_hash(self) -> u64 {
        mix(self.to_u64() >> 6)
    }
}

/// Finalizer of MurmurHash3 (Austin Appleby, public domain): spreads every input bit over the result.
pub fn mix(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.space.0, self.page.0)
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tablespace {} page {}", self.space.0, self.page.0)
    }
}
