//! The catalog's rows on disk.
//!
//! The catalog is a few indexes in the pack tree of tablespace 0. Their ids are reserved (below [`FIRST_INDEX`]); keys are
//! memcmp-ordered; every value begins with the version of its row format, 1 (of a table with foreign keys 2, with row layouts 3). Integers in values are LEB128 unless a
//! width is given; byte strings have their length (LEB128) in front.
//!
//! | index | holds | key | value after the version byte |
//! |---|---|---|---|
//! | 1 | tables | database, 0, table, 0 | flags u8, table id, definition version, tablespace, shape, image length, \[patch 16 bytes\], creation time (s), number of indexes, for each: id, root page, flags u8; \[AUTO_INCREMENT index id, root page\]; \[number of foreign keys, for each: name, parent's database, parent, ON DELETE u8, ON UPDATE u8, number of columns, for each: column, parent's column\]; \[row layouts\] |
//! | 2 | shapes | shape id u32 | image, bytes 66..82 zeroed if it has them |
//! | 3 | tablespaces | tablespace id u32 | state u8, UUID 16 bytes, guests, path, database |
//! | 4 | databases | database, 0 | tablespace |
//! | 5 | pending work | kind u8, id u32 | kind 1: tablespace, root page; kind 4 (version 2): database, number of files, for each: name, contents; others: nothing |
//! | 6 | counters | counter u8 | next value to give |
//! | 7 | shapes by content | hash u64, shape id u32 | nothing |
//! | 8 | destroyed indexes that had a root of their own | index id u32 | nothing |
//! | 9 | foreign keys by parent | parent's database, 0, parent, 0, database, 0, table, 0 | nothing |
//!
//! Integers in keys are big endian. Parts in brackets are there if the flags say so.

use crate::def::{ForeignKey, IndexDef, IndexSpec, ReferenceAction, TableDef};
use myriad_base::codec::{push_bytes, push_varint, Reader};
use myriad_base::{Error, IndexId, PageNo, Result, ShapeId, SpaceId, TableId};

/// First index id given to a table; those below are the engine's own.
pub const FIRST_INDEX: u32 = 1024;
/// Tables by name.
pub const TABLES: IndexId = IndexId(1);
/// Shapes by id.
pub const SHAPES: IndexId = IndexId(2);
/// Tablespaces by id.
pub const SPACES: IndexId = IndexId(3);
/// Databases by name.
pub const DATABASES: IndexId = IndexId(4);
/// Work that must be finished in the background or after a crash.
pub const PENDING: IndexId = IndexId(5);
/// Counters.
pub const COUNTERS: IndexId = IndexId(6);
/// Shapes by content.
pub const SHAPE_HASHES: IndexId = IndexId(7);
/// Indexes whose own root page was freed: undo records that name it must not be followed.
pub const DESTROYED: IndexId = IndexId(8);
/// Tables with foreign keys, by the tables that these refer to.
pub const REFERENCES: IndexId = IndexId(9);

const ROW_VERSION: u8 = 1;
/// Of [`CloneNote`]: version 1 had the contents of one file in place of a list.
const CLONE_VERSION: u8 = 2;
/// A table's row with foreign keys, which older programs would lose without a word.
const ROW_VERSION_FOREIGN_KEYS: u8 = 2;
/// One with row layouts, whose rows older programs would misread.
const ROW_VERSION_LAYOUTS: u8 = 3;

const TABLE_HIDDEN_ROW_ID: u8 = 1;
const TABLE_TEMPORARY: u8 = 2;
const TABLE_OWN_SPACE: u8 = 4;
const TABLE_AUTO_INCREMENT: u8 = 8;
const TABLE_PATCH: u8 = 16;
const TABLE_FOREIGN_KEYS: u8 = 32;
const TABLE_LAYOUTS: u8 = 64;
const INDEX_UNIQUE: u8 = 1;
const INDEX_HASH: u8 = 2;

/// The server's image keeps a UUID of the definition here: all that differs between tables of one shape.
pub const PATCH: std::ops::Range<usize> = 66..82;

fn corrupt(what: &str) -> Error {
    Error::CorruptFile { path: "catalog".into(), reason: format!("unreadable {what} row") }
}

fn versioned<'a>(value: &'a [u8], what: &str) -> Result<Reader<'a>> {
    of_version(value, ROW_VERSION, what)
}

fn of_version<'a>(value: &'a [u8], version: u8, what: &str) -> Result<Reader<'a>> {
    let mut r = Reader::new(value);
    match r.u8() {
        Some(v) if v == version => Ok(r),
        Some(v) => Err(Error::Format {
            path: "catalog".into(),
            reason: format!("{what} row of version {v}, known is {version}"),
        }),
        None => Err(corrupt(what)),
    }
}

fn u32_field(r: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(r.varint()?).ok()
}

/// Stands for a database in the rows of the tablespace that all databases share.
pub const SHARED_DATABASE: &str = "*";
/// The database of temporary tables: dropped at every start.
pub const TEMPORARY_DATABASE: &str = "#tmp";

/// Longest database or table part of a name, in bytes: the server's 64 characters, five bytes each in its file name
/// encoding, and room for partition suffixes.
pub const NAME_BYTES_MAX: usize = 1024;

/// Splits `db/table` and appends its key.
pub fn push_table_key(out: &mut Vec<u8>, name: &str) -> Result<()> {
    let (db, table) = name
        .split_once('/')
        .ok_or_else(|| Error::invalid(format!("table name {name:?}: it has to be database/table")))?;
    push_database_key(out, db)?;
    check_part(table)?;
    out.extend_from_slice(table.as_bytes());
    out.push(0);
    Ok(())
}

/// Appends a database's key, which is the prefix of its tables' keys.
///
/// # Errors
/// [`Error::Invalid`] for [`SHARED_DATABASE`], with whose tables those of all others would go.
pub fn push_database_key(out: &mut Vec<u8>, db: &str) -> Result<()> {
    check_part(db)?;
    if db == SHARED_DATABASE {
        return Err(Error::invalid(format!("database name {db:?}: it stands for all databases")));
    }
    out.extend_from_slice(db.as_bytes());
    out.push(0);
    Ok(())
}

fn check_part(part: &str) -> Result<()> {
    if part.is_empty() || part.bytes().any(|b| b == 0 || b == b'/') {
        return Err(Error::invalid(format!("name {part:?}: it must not be empty, nor have a slash or a zero byte")));
    }
    if part.len() > NAME_BYTES_MAX {
        return Err(Error::TooLong { what: "name", len: part.len(), max: NAME_BYTES_MAX });
    }
    Ok(())
}

/// Reads a table's key back: `(database, table)`.
pub fn parse_table_key(key: &[u8]) -> Result<(&str, &str)> {
    let mut parts = key.split(|&b| b == 0);
    let mut part = || parts.next().and_then(|p| std::str::from_utf8(p).ok()).ok_or_else(|| corrupt("table"));
    Ok((part()?, part()?))
}

/// What the keys of all tables that refer to `parent` begin with.
pub fn reference_prefix(parent: &str) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    push_table_key(&mut key, parent)?;
    Ok(key)
}

/// The key that says that `child` has foreign keys to `parent`.
pub fn reference_key(parent: &str, child: &str) -> Result<Vec<u8>> {
    let mut key = reference_prefix(parent)?;
    push_table_key(&mut key, child)?;
    Ok(key)
}

/// Reads it back: parent and child, each as `db/table`.
pub fn parse_reference_key(key: &[u8]) -> Result<(String, String)> {
    let mut parts = key.split(|&b| b == 0);
    let mut part = || parts.next().and_then(|p| std::str::from_utf8(p).ok()).ok_or_else(|| corrupt("reference"));
    let mut name = || Ok(format!("{}/{}", part()?, part()?));
    Ok((name()?, name()?))
}

/// The value of such a row.
pub fn encode_reference() -> Vec<u8> {
    vec![ROW_VERSION]
}

fn push_foreign_keys(out: &mut Vec<u8>, keys: &[ForeignKey]) {
    push_varint(out, keys.len() as u64);
    for f in keys {
        let (db, table) = f.parent.split_once('/').unwrap_or(("", &f.parent));
        for text in [&f.name, db, table] {
            push_bytes(out, text.as_bytes());
        }
        out.extend([f.on_delete as u8, f.on_update as u8]);
        push_varint(out, f.columns.len() as u64);
        for (column, referenced) in &f.columns {
            push_bytes(out, column.as_bytes());
            push_bytes(out, referenced.as_bytes());
        }
    }
}

fn foreign_key_fields(r: &mut Reader<'_>) -> Option<Box<[ForeignKey]>> {
    fn text(r: &mut Reader<'_>) -> Option<String> {
        String::from_utf8(r.bytes()?.to_vec()).ok()
    }
    let mut keys = Vec::new();
    for _ in 0..r.varint()? {
        let (name, db, table) = (text(r)?, text(r)?, text(r)?);
        let (on_delete, on_update) = (ReferenceAction::from_u8(r.u8()?)?, ReferenceAction::from_u8(r.u8()?)?);
        let mut columns = Vec::new();
        for _ in 0..r.varint()? {
            columns.push((text(r)?, text(r)?));
        }
        keys.push(ForeignKey { name, parent: format!("{db}/{table}"), on_delete, on_update, columns });
    }
    Some(keys.into())
}

/// Encodes a table's row.
pub fn encode_table(def: &TableDef) -> Vec<u8> {
    let has_patch = def.frm_len as usize >= PATCH.end || (def.frm_len == 0 && def.frm_patch != [0; 16]);
    let mut flags = 0;
    for (bit, set) in [
        (TABLE_HIDDEN_ROW_ID, def.hidden_row_id),
        (TABLE_TEMPORARY, def.temporary),
        (TABLE_OWN_SPACE, def.own_space),
        (TABLE_AUTO_INCREMENT, def.auto_increment.is_some()),
        (TABLE_PATCH, has_patch),
        (TABLE_FOREIGN_KEYS, !def.foreign_keys.is_empty()),
        (TABLE_LAYOUTS, !def.row_layouts.is_empty()),
    ] {
        if set {
            flags |= bit;
        }
    }
    let version = match (def.row_layouts.is_empty(), def.foreign_keys.is_empty()) {
        (false, _) => ROW_VERSION_LAYOUTS,
        (true, false) => ROW_VERSION_FOREIGN_KEYS,
        (true, true) => ROW_VERSION,
    };
    let mut out = vec![version, flags];
    for v in [def.id.0, def.version, def.space.0, def.shape.0, def.frm_len] {
        push_varint(&mut out, u64::from(v));
    }
    if has_patch {
        out.extend_from_slice(&def.frm_patch);
    }
    push_varint(&mut out, def.create_time_s);
    push_varint(&mut out, def.indexes.len() as u64);
    for index in &def.indexes {
        push_varint(&mut out, u64::from(index.id.0));
        push_varint(&mut out, u64::from(index.root.0));
        let IndexSpec { unique, hash } = index.spec;
        out.push((u8::from(unique) * INDEX_UNIQUE) | (u8::from(hash) * INDEX_HASH));
    }
    if let Some(index) = &def.auto_increment {
        push_varint(&mut out, u64::from(index.id.0));
        push_varint(&mut out, u64::from(index.root.0));
    }
    if !def.foreign_keys.is_empty() {
        push_foreign_keys(&mut out, &def.foreign_keys);
    }
    if !def.row_layouts.is_empty() {
        push_bytes(&mut out, &def.row_layouts);
    }
    out
}

/// Decodes the row of the table called `name`.
///
/// # Errors
/// [`Error::Format`] for a row of another version, [`Error::CorruptFile`] for one that cannot be read.
pub fn decode_table(name: String, value: &[u8]) -> Result<TableDef> {
    let r = match value.split_first() {
        Some((&(ROW_VERSION_FOREIGN_KEYS | ROW_VERSION_LAYOUTS), rest)) => Reader::new(rest),
        _ => versioned(value, "table")?,
    };
    table_fields(name, r).ok_or_else(|| corrupt("table"))
}

/// Whether an index with this id can be a table's. The last number has no successor, as ends of key ranges must.
fn is_index_of_table(id: u32) -> bool {
    (FIRST_INDEX..u32::MAX).contains(&id)
}

/// The id and the root page of a table's index.
fn index_fields(r: &mut Reader<'_>) -> Option<(IndexId, PageNo)> {
    let (id, root) = (u32_field(r)?, PageNo(u32_field(r)?));
    is_index_of_table(id).then_some((IndexId(id), root))
}

fn table_fields(name: String, mut r: Reader<'_>) -> Option<TableDef> {
    let flags = r.u8()?;
    let id = TableId(u32_field(&mut r)?);
    let version = u32_field(&mut r)?;
    let space = SpaceId(u32_field(&mut r)?);
    let shape = ShapeId(u32_field(&mut r)?);
    let frm_len = u32_field(&mut r)?;
    let mut frm_patch = [0; 16];
    if flags & TABLE_PATCH != 0 {
        frm_patch.copy_from_slice(r.take(16)?);
    }
    let create_time_s = r.varint()?;
    let count = usize::try_from(r.varint()?).ok()?;
    // Three bytes at least for each: a damaged count must not reserve memory.
    if count == 0 || count > r.rest().len() / 3 {
        return None;
    }
    let mut indexes = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, root) = index_fields(&mut r)?;
        let flags = r.u8()?;
        let spec = IndexSpec { unique: flags & INDEX_UNIQUE != 0, hash: flags & INDEX_HASH != 0 };
        indexes.push(IndexDef { id, root, spec });
    }
    let auto_increment = if flags & TABLE_AUTO_INCREMENT != 0 {
        let (id, root) = index_fields(&mut r)?;
        Some(IndexDef { id, root, spec: IndexSpec::UNIQUE })
    } else {
        None
    };
    let foreign_keys = if flags & TABLE_FOREIGN_KEYS != 0 { foreign_key_fields(&mut r)? } else { Box::default() };
    let row_layouts = if flags & TABLE_LAYOUTS != 0 { r.bytes()?.into() } else { Box::default() };
    Some(TableDef {
        name,
        id,
        version,
        space,
        indexes,
        hidden_row_id: flags & TABLE_HIDDEN_ROW_ID != 0,
        auto_increment,
        temporary: flags & TABLE_TEMPORARY != 0,
        own_space: flags & TABLE_OWN_SPACE != 0,
        create_time_s,
        shape,
        frm_patch,
        frm_len,
        foreign_keys,
        row_layouts,
    })
}

/// Life of a tablespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SpaceState {
    /// Its row is durable, its file perhaps not yet there.
    Creating = 1,
    /// In use.
    Normal = 2,
    /// Its file is being removed.
    Dropping = 3,
    /// Its database is gone; it lives on for its guests.
    Orphan = 4,
}

/// A tablespace's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRow {
    /// Where it is in its life.
    pub state: SpaceState,
    /// As in the file's header.
    pub uuid: [u8; 16],
    /// Tables in it whose database is another: they outlive their tablespace's database.
    pub guests: u64,
    /// File, relative to the engine's directory.
    pub path: String,
    /// The database it belongs to; [`SHARED_DATABASE`] if to all.
    pub database: String,
}

impl SpaceRow {
    /// Whether a table of `database` is a guest here.
    pub fn is_guest(&self, database: &str) -> bool {
        match self.state {
            SpaceState::Orphan => true,
            _ => self.database != SHARED_DATABASE && self.database != database,
        }
    }

    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![ROW_VERSION, self.state as u8];
        out.extend_from_slice(&self.uuid);
        push_varint(&mut out, self.guests);
        push_bytes(&mut out, self.path.as_bytes());
        push_bytes(&mut out, self.database.as_bytes());
        out
    }

    /// Decodes it.
    ///
    /// # Errors
    /// As [`decode_table`].
    pub fn decode(value: &[u8]) -> Result<SpaceRow> {
        let r = versioned(value, "tablespace")?;
        Self::fields(r).ok_or_else(|| corrupt("tablespace"))
    }

    fn fields(mut r: Reader<'_>) -> Option<SpaceRow> {
        let state = match r.u8()? {
            1 => SpaceState::Creating,
            2 => SpaceState::Normal,
            3 => SpaceState::Dropping,
            4 => SpaceState::Orphan,
            _ => return None,
        };
        let uuid = r.take(16)?.try_into().ok()?;
        let guests = r.varint()?;
        let mut text = || String::from_utf8(r.bytes()?.to_vec()).ok();
        Some(SpaceRow { state, uuid, guests, path: text()?, database: text()? })
    }
}

/// A row that is one number: a database's tablespace, a counter.
pub fn encode_number(v: u64) -> Vec<u8> {
    let mut out = vec![ROW_VERSION];
    push_varint(&mut out, v);
    out
}

/// Reverse of [`encode_number`].
///
/// # Errors
/// As [`decode_table`].
pub fn decode_number(value: &[u8]) -> Result<u64> {
    versioned(value, "number")?.varint().ok_or_else(|| corrupt("number"))
}

/// Work that must be finished in the background or after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A dropped index: its entries are to be removed.
    Index {
        /// Which.
        id: IndexId,
        /// Its tablespace.
        space: SpaceId,
        /// Root of the tree that holds it.
        root: PageNo,
    },
    /// A tablespace under creation: after a crash its file is to be removed.
    SpaceCreate(SpaceId),
    /// A dropped tablespace: its file is to be removed.
    SpaceDrop(SpaceId),
}

impl Pending {
    const INDEX: u8 = 1;
    const SPACE_CREATE: u8 = 2;
    const SPACE_DROP: u8 = 3;

    /// The tablespace that it is about.
    pub fn space(&self) -> SpaceId {
        match *self {
            Pending::Index { space, .. } | Pending::SpaceDrop(space) | Pending::SpaceCreate(space) => space,
        }
    }

    /// Its key.
    pub fn key(&self) -> [u8; 5] {
        let (kind, id) = match *self {
            Pending::Index { id, .. } => (Pending::INDEX, id.0),
            Pending::SpaceCreate(id) => (Pending::SPACE_CREATE, id.0),
            Pending::SpaceDrop(id) => (Pending::SPACE_DROP, id.0),
        };
        let mut key = [kind, 0, 0, 0, 0];
        key[1..].copy_from_slice(&id.to_be_bytes());
        key
    }

    /// Its value.
    pub fn value(&self) -> Vec<u8> {
        let mut out = vec![ROW_VERSION];
        if let Pending::Index { space, root, .. } = *self {
            push_varint(&mut out, u64::from(space.0));
            push_varint(&mut out, u64::from(root.0));
        }
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// As [`decode_table`].
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Pending> {
        let r = versioned(value, "pending work")?;
        Self::fields(key, r).ok_or_else(|| corrupt("pending work"))
    }

    fn fields(key: &[u8], mut r: Reader<'_>) -> Option<Pending> {
        let (&kind, id) = key.split_first()?;
        let id = u32::from_be_bytes(id.try_into().ok()?);
        Some(match kind {
            // The catalog's own indexes are never dropped.
            Pending::INDEX if is_index_of_table(id) => {
                Pending::Index { id: IndexId(id), space: SpaceId(u32_field(&mut r)?), root: PageNo(u32_field(&mut r)?) }
            }
            Pending::SPACE_CREATE => Pending::SpaceCreate(SpaceId(id)),
            Pending::SPACE_DROP => Pending::SpaceDrop(SpaceId(id)),
            _ => return None,
        })
    }
}

/// A file that the server wants in a copied database's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderFile {
    /// Its name, without a path.
    pub name: String,
    /// Its bytes.
    pub contents: Vec<u8>,
}

/// A database whose tables were copied while its folder perhaps is not there yet: kind 4 of the pending work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneNote {
    /// One of the copy's table ids.
    pub id: u32,
    /// The new database, in file name encoding.
    pub database: String,
    /// What the server wants in the folder, in the order in which the files are made.
    pub files: Vec<FolderFile>,
}

impl CloneNote {
    /// First byte of its key.
    pub const KIND: u8 = 4;

    /// The key of the note with this id.
    pub fn key_of(id: u32) -> [u8; 5] {
        let mut key = [CloneNote::KIND, 0, 0, 0, 0];
        key[1..].copy_from_slice(&id.to_be_bytes());
        key
    }

    /// Its key.
    pub fn key(&self) -> [u8; 5] {
        CloneNote::key_of(self.id)
    }

    /// Its value.
    pub fn value(&self) -> Vec<u8> {
        let mut out = vec![CLONE_VERSION];
        push_bytes(&mut out, self.database.as_bytes());
        push_varint(&mut out, self.files.len() as u64);
        for file in &self.files {
            push_bytes(&mut out, file.name.as_bytes());
            push_bytes(&mut out, &file.contents);
        }
        out
    }

    /// Reads it back.
    ///
    /// # Errors
    /// As [`decode_table`].
    pub fn decode(key: &[u8], value: &[u8]) -> Result<CloneNote> {
        let note = match value.first() {
            Some(&ROW_VERSION) => Self::fields_1(key, versioned(value, "copied database")?),
            _ => Self::fields(key, of_version(value, CLONE_VERSION, "copied database")?),
        };
        note.ok_or_else(|| corrupt("copied database"))
    }

    fn id_in(key: &[u8]) -> Option<u32> {
        Some(u32::from_be_bytes(key.strip_prefix(&[CloneNote::KIND])?.try_into().ok()?))
    }

    /// Version 1 has one file, without its name.
    fn fields_1(key: &[u8], mut r: Reader<'_>) -> Option<CloneNote> {
        let database = String::from_utf8(r.bytes()?.to_vec()).ok()?;
        let file = FolderFile { name: "db.opt".into(), contents: r.bytes()?.to_vec() };
        Some(CloneNote { id: Self::id_in(key)?, database, files: vec![file] })
    }

    fn fields(key: &[u8], mut r: Reader<'_>) -> Option<CloneNote> {
        let text = |r: &mut Reader<'_>| String::from_utf8(r.bytes()?.to_vec()).ok();
        let database = text(&mut r)?;
        let mut files = Vec::new();
        for _ in 0..r.varint()? {
            files.push(FolderFile { name: text(&mut r)?, contents: r.bytes()?.to_vec() });
        }
        Some(CloneNote { id: Self::id_in(key)?, database, files })
    }
}

/// Encodes a shape's image.
pub fn encode_shape(image: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(image.len() + 1);
    out.push(ROW_VERSION);
    out.extend_from_slice(image);
    out
}

/// Reverse of [`encode_shape`].
///
/// # Errors
/// As [`decode_table`].
pub fn decode_shape(value: &[u8]) -> Result<&[u8]> {
    Ok(versioned(value, "shape")?.rest())
}

/// The key of a row of [`SHAPE_HASHES`].
pub fn shape_hash_key(hash: u64, id: ShapeId) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&hash.to_be_bytes());
    key[8..].copy_from_slice(&id.0.to_be_bytes());
    key
}

/// Reverse of [`shape_hash_key`].
///
/// # Errors
/// [`Error::Invalid`] for a key of another length.
pub fn parse_shape_hash(key: &[u8]) -> Result<(u64, ShapeId)> {
    let parts = key.split_first_chunk::<8>().and_then(|(hash, id)| Some((hash, <[u8; 4]>::try_from(id).ok()?)));
    let (hash, id) = parts.ok_or_else(|| Error::invalid("shape key"))?;
    Ok((u64::from_be_bytes(*hash), ShapeId(u32::from_be_bytes(id))))
}

/// A 64-bit hash of an image. On disk: must never change.
pub fn content_hash(image: &[u8]) -> u64 {
    let mut h = image.len() as u64;
    for chunk in image.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        h = myriad_base::ids::mix(h.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    h
}

/// Splits an image into its shape (patch zeroed) and its patch.
pub fn split_image(frm: &[u8]) -> (Vec<u8>, [u8; 16]) {
    let (mut image, mut patch) = (frm.to_vec(), [0; 16]);
    if image.len() >= PATCH.end {
        patch.copy_from_slice(&image[PATCH]);
        image[PATCH].fill(0);
    }
    (image, patch)
}

/// Reverse of [`split_image`].
pub fn join_image(shape: &[u8], patch: &[u8; 16]) -> Vec<u8> {
    let mut image = shape.to_vec();
    if image.len() >= PATCH.end {
        image[PATCH].copy_from_slice(patch);
    }
    image
}

/// File name of a new tablespace: as much of the database's name as is safe in any file system, and the id, which makes
/// it unique.
pub fn file_name(database: &str, id: SpaceId) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "_@#$-".contains(c) { c } else { '_' };
    let stem: String = database.chars().map(safe).take(160).collect();
    format!("{stem}.{id}.myr")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index(id: u32) -> IndexDef {
        let spec = IndexSpec { unique: id.is_multiple_of(2), hash: id.is_multiple_of(3) };
        IndexDef { id: IndexId(id), root: PageNo(id / 2), spec }
    }

    prop_compose! {
        fn foreign_key()(
            name: String, table in "[a-z]{1,9}", actions in (0u8..4, 0u8..4), columns: Vec<(String, String)>,
        ) -> ForeignKey {
            let action = |v| ReferenceAction::from_u8(v).unwrap();
            let (on_delete, on_update) = (action(actions.0), action(actions.1));
            ForeignKey { name, parent: format!("d/{table}"), on_delete, on_update, columns }
        }
    }

    proptest! {
        #[test]
        fn table_rows_round_trip(
            ids in proptest::collection::vec(FIRST_INDEX..u32::MAX, 1..70),
            numbers: [u32; 4], frm_len in prop_oneof![Just(0u32), 1u32..200], flags: [bool; 3], auto in proptest::option::of(FIRST_INDEX..u32::MAX), time: u64, patch: [u8; 16],
            keys in proptest::collection::vec(foreign_key(), 0..4), layouts in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let def = TableDef {
                name: "d/t".into(),
                id: TableId(numbers[0]),
                version: numbers[1],
                space: SpaceId(numbers[2]),
                indexes: ids.into_iter().map(index).collect(),
                hidden_row_id: flags[0],
                auto_increment: auto.map(|id| IndexDef { spec: IndexSpec::UNIQUE, ..index(id) }),
                temporary: flags[1],
                own_space: flags[2],
                create_time_s: time,
                shape: ShapeId(numbers[3]),
                frm_patch: if frm_len >= 82 || frm_len == 0 { patch } else { [0; 16] },
                frm_len,
                foreign_keys: keys.into(),
                row_layouts: layouts.into(),
            };
            prop_assert_eq!(decode_table("d/t".into(), &encode_table(&def)).unwrap(), def);
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>, key: Vec<u8>) {
            let _ = decode_table("x/y".into(), &bytes);
            let _ = SpaceRow::decode(&bytes);
            let _ = Pending::decode(&key, &bytes);
            let _ = CloneNote::decode(&[&[CloneNote::KIND][..], &[0; 4]].concat(), &bytes);
            let _ = decode_number(&bytes);
            let _ = parse_table_key(&key);
            let _ = parse_reference_key(&key);
        }

        #[test]
        fn images_round_trip(frm in proptest::collection::vec(any::<u8>(), 0..300)) {
            let (shape, patch) = split_image(&frm);
            prop_assert_eq!(join_image(&shape, &patch), frm);
        }

        #[test]
        fn file_names_are_safe(db: String, id: u32) {
            let name = file_name(&db, SpaceId(id));
            prop_assert!(name.len() < 200 && !name.contains('/') && !name.contains('\0') && !name.starts_with(".."));
        }
    }

    fn ordinary_table() -> TableDef {
        TableDef {
            name: "shop_000123/customer_orders".into(),
            id: TableId(3_000_000),
            version: 1,
            space: SpaceId(1_000_000),
            indexes: (3_000_000..3_000_004).map(index).collect(),
            hidden_row_id: false,
            auto_increment: Some(index(3_000_005)),
            temporary: false,
            own_space: false,
            create_time_s: 1_900_000_000,
            shape: ShapeId(300),
            frm_patch: [7; 16],
            frm_len: 700,
            foreign_keys: Box::default(),
            row_layouts: Box::default(),
        }
    }

    #[test]
    fn an_ordinary_table_takes_little() {
        let def = ordinary_table();
        let mut key = Vec::new();
        push_table_key(&mut key, &def.name).unwrap();
        assert!(key.len() + encode_table(&def).len() < 128);
    }

    /// Older programs refuse a table whose row says more than they know.
    #[test]
    fn a_tables_row_is_of_the_first_version_that_knows_what_is_in_it() {
        let plain = ordinary_table();
        let key = ForeignKey {
            name: "k".into(),
            parent: "d/p".into(),
            on_delete: ReferenceAction::Restrict,
            on_update: ReferenceAction::Restrict,
            columns: vec![],
        };
        let with_keys = TableDef { foreign_keys: [key].into(), ..plain.clone() };
        let with_layouts = TableDef { row_layouts: [1, 2].into(), ..plain.clone() };
        let with_both = TableDef { row_layouts: [1, 2].into(), ..with_keys.clone() };
        for (def, version) in [(plain, 1), (with_keys, 2), (with_layouts, 3), (with_both, 3)] {
            let mut row = encode_table(&def);
            assert_eq!(row[0], version);
            row[0] = 4;
            assert!(matches!(decode_table("d/t".into(), &row), Err(Error::Format { .. })));
        }
        for value in [&[2, 7][..], &[0, 7]] {
            assert!(matches!(decode_number(value), Err(Error::Format { .. })));
        }
    }

    #[test]
    fn ids_that_no_table_can_have_are_corrupt() {
        let is_corrupt =
            |def: &TableDef| matches!(decode_table("d/t".into(), &encode_table(def)), Err(Error::CorruptFile { .. }));
        for (id, bad) in [(FIRST_INDEX - 1, true), (FIRST_INDEX, false), (u32::MAX - 1, false), (u32::MAX, true)] {
            let auto_increment = IndexDef { spec: IndexSpec::UNIQUE, ..index(id) };
            assert_eq!(is_corrupt(&TableDef { indexes: vec![index(id)], ..ordinary_table() }), bad, "{id}");
            let counting = TableDef { auto_increment: Some(auto_increment), ..ordinary_table() };
            assert_eq!(is_corrupt(&counting), bad, "{id}");
            let dropped = Pending::Index { id: IndexId(id), space: SpaceId(16), root: PageNo(2) };
            assert_eq!(Pending::decode(&dropped.key(), &dropped.value()).is_err(), bad, "{id}");
        }
        assert!(is_corrupt(&TableDef { indexes: vec![], auto_increment: None, ..ordinary_table() }));
        // A table id, and then a number of indexes, beyond what there can be.
        let too_large = [&[1, 0][..], &[0xff, 0xff, 0xff, 0xff, 0x1f], &[1, 1, 1, 0, 0, 1, 0x80, 8, 0, 0]].concat();
        let too_many = [&[1, 0, 1, 1, 1, 1, 0, 0][..], &[0xff; 8], &[0x7f, 0x80, 8, 0, 0]].concat();
        for row in [&too_large[..], &too_many[..]] {
            assert!(matches!(decode_table("d/t".into(), row), Err(Error::CorruptFile { .. })));
        }
        let sound = [1, 0, 1, 1, 1, 1, 0, 0, 1, 0x80, 8, 0, 0];
        decode_table("d/t".into(), &sound).unwrap();
    }

    #[test]
    fn an_image_has_a_patch_from_its_length_on() {
        for (frm_len, has_patch) in [(81, false), (82, true)] {
            let def = TableDef { frm_len, ..ordinary_table() };
            let decoded = decode_table(def.name.clone(), &encode_table(&def)).unwrap();
            assert_eq!(decoded.frm_patch, if has_patch { [7; 16] } else { [0; 16] });
        }
        let image = |patch: u8, len: usize| {
            let mut image = vec![1; len];
            image[PATCH.start..].iter_mut().take(16).for_each(|b| *b = patch);
            image
        };
        assert_eq!(split_image(&image(2, 82)).0, split_image(&image(3, 82)).0, "one shape");
        assert_ne!(split_image(&image(2, 81)).0, split_image(&image(3, 81)).0, "it has no patch");
    }

    #[test]
    fn names_are_checked() {
        for bad in ["t", "/t", "d/", "d/a/b", "d/\0", "\0/t", "*/t"] {
            assert!(push_table_key(&mut Vec::new(), bad).is_err(), "{bad:?}");
        }
        let mut key = Vec::new();
        push_table_key(&mut key, "d/t#P#p0").unwrap();
        assert_eq!(parse_table_key(&key).unwrap(), ("d", "t#P#p0"));
        for (len, fits) in [(NAME_BYTES_MAX, true), (NAME_BYTES_MAX + 1, false)] {
            let part = "n".repeat(len);
            for name in [format!("d/{part}"), format!("{part}/t")] {
                assert_eq!(push_table_key(&mut Vec::new(), &name).is_ok(), fits);
            }
        }
    }

    #[test]
    fn references_of_one_parent_are_together() {
        let key = reference_key("d/p", "e/c").unwrap();
        assert_eq!(parse_reference_key(&key).unwrap(), ("d/p".into(), "e/c".into()));
        assert!(key.starts_with(&reference_prefix("d/p").unwrap()));
        assert!(!reference_key("d/p2", "e/c").unwrap().starts_with(&reference_prefix("d/p").unwrap()));
    }

    #[test]
    fn pending_and_space_rows_round_trip() {
        for p in [
            Pending::Index { id: IndexId(5000), space: SpaceId(16), root: PageNo(2) },
            Pending::SpaceCreate(SpaceId(17)),
            Pending::SpaceDrop(SpaceId(18)),
        ] {
            assert_eq!(Pending::decode(&p.key(), &p.value()).unwrap(), p);
        }
        let row = SpaceRow {
            state: SpaceState::Normal,
            uuid: [9; 16],
            guests: 3,
            path: "d.16.myr".into(),
            database: "d".into(),
        };
        for state in [SpaceState::Creating, SpaceState::Normal, SpaceState::Dropping, SpaceState::Orphan] {
            let row = SpaceRow { state, ..row.clone() };
            assert_eq!(SpaceRow::decode(&row.encode()).unwrap(), row);
        }
        let shared = SpaceRow { database: SHARED_DATABASE.into(), ..row.clone() };
        let orphan = SpaceRow { state: SpaceState::Orphan, ..row.clone() };
        assert!(!row.is_guest("d") && row.is_guest("e") && !shared.is_guest("e") && orphan.is_guest("d"));
    }

    #[test]
    fn keys_are_in_the_order_of_their_numbers() {
        assert_eq!(Pending::SpaceDrop(SpaceId(0x0102_0304)).key(), [3, 1, 2, 3, 4]);
        assert_eq!(CloneNote::key_of(0x0102_0304), [4, 1, 2, 3, 4]);
        let key = shape_hash_key(0x0102_0304_0506_0708, ShapeId(0x090a_0b0c));
        assert_eq!(key, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(parse_shape_hash(&key).unwrap(), (0x0102_0304_0506_0708, ShapeId(0x090a_0b0c)));
        assert!(parse_shape_hash(&key[..11]).is_err() && parse_shape_hash(&[&key[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_files_name_tells_the_database() {
        assert_eq!(file_name("shop_1", SpaceId(16)), "shop_1.16.myr");
        assert_eq!(file_name("sh.op/\u{e4}", SpaceId(17)), "sh_op__.17.myr");
        assert_eq!(file_name(&"d".repeat(200), SpaceId(18)), format!("{}.18.myr", "d".repeat(160)));
    }

    #[test]
    fn clone_notes_round_trip() {
        let file = |name: &str, contents: &[u8]| FolderFile { name: name.into(), contents: contents.into() };
        let note =
            CloneNote { id: 7, database: "d".into(), files: vec![file("v.frm", &[1; 300]), file("db.opt", b"")] };
        assert_eq!(CloneNote::decode(&note.key(), &note.value()).unwrap(), note);
        let version_1 = [&[1, 1][..], b"d", &[3], b"opt"].concat();
        let old = CloneNote { files: vec![file("db.opt", b"opt")], ..note.clone() };
        assert_eq!(CloneNote::decode(&note.key(), &version_1).unwrap(), old);
        assert!(CloneNote::decode(&note.key(), &[9]).is_err());
    }

    #[test]
    fn hash_on_disk_never_changes() {
        assert_eq!(content_hash(b""), 0);
        assert_eq!(content_hash(b"myriad shape"), 0x8a3c_1f97_ce60_4268);
        assert_ne!(content_hash(b"a"), content_hash(b"a\0"));
    }
}
