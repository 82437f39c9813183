//! Interned images.
//!
//! A shape is stored once, by its content, outside of transactions: one that nobody uses after a failed CREATE is found
//! again by the next. Those that no table has are removed some time (`unused.rs`).

use crate::rows;
use crate::store::{index, Catalog, Counter};
use myriad_base::{Error, Result, ShapeId};
use std::sync::Arc;

impl Catalog {
    /// The shape of this image, stored if it is new; and the image's patch. The caller holds [`Catalog::defining`].
    pub(crate) fn intern(&self, frm: &[u8]) -> Result<(ShapeId, [u8; 16])> {
        if frm.is_empty() {
            return Ok((ShapeId(0), [0; 16]));
        }
        let (image, patch) = rows::split_image(frm);
        let hash = rows::content_hash(&image);
        let epoch = match self.shape_ids.get(&hash) {
            Ok(id) if self.has_image(id, &image)? => {
                self.sweeps.keep(id);
                return Ok((id, patch));
            }
            Ok(_) => None,
            Err(epoch) => Some(epoch),
        };
        let _one_at_a_time = self.interning.lock();
        let id = match self.find_shape(hash, &image)? {
            Some(id) => id,
            None => self.store_shape(hash, &image)?,
        };
        self.sweeps.keep(id);
        if let Some(epoch) = epoch {
            self.shape_ids.insert(hash, id, 32, epoch);
        }
        Ok((id, patch))
    }

    /// The stored shape with this content.
    fn find_shape(&self, hash: u64, image: &[u8]) -> Result<Option<ShapeId>> {
        let mut candidates = Vec::new();
        self.scan(rows::SHAPE_HASHES, &hash.to_be_bytes(), &mut |key, _| {
            candidates.push(rows::parse_shape_hash(key)?.1);
            Ok(true)
        })?;
        for id in candidates {
            if self.has_image(id, image)? {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// A damaged one is nobody else's: the next table of this shape gets another.
    fn has_image(&self, id: ShapeId, image: &[u8]) -> Result<bool> {
        match self.shape(id) {
            Ok(shape) => Ok(*shape == *image),
            Err(Error::CorruptFile { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn store_shape(&self, hash: u64, image: &[u8]) -> Result<ShapeId> {
        let id = ShapeId(self.allocate(Counter::Shape, 1)?);
        // The shape before the way to it: a crash in between costs the space, nothing else.
        self.trx.put_unversioned(&index(rows::SHAPES), &id.0.to_be_bytes(), &rows::encode_shape(image))?;
        self.trx.put_unversioned(&index(rows::SHAPE_HASHES), &rows::shape_hash_key(hash, id), &[])?;
        self.sweeps.note_stored();
        Ok(id)
    }

    /// A shape's image, its patch zeroed.
    pub(crate) fn shape(&self, id: ShapeId) -> Result<Arc<[u8]>> {
        let epoch = match self.shapes.get(&id.0) {
            Ok(image) => return Ok(image),
            Err(epoch) => epoch,
        };
        let mut value = Vec::new();
        if !self.trx.get_newest(&index(rows::SHAPES), &id.0.to_be_bytes(), &mut value)? {
            return Err(Error::CorruptFile { path: "catalog".into(), reason: format!("shape {id} is missing") });
        }
        let image: Arc<[u8]> = rows::decode_shape(&value)?.into();
        self.expect_as_stored(id, &image)?;
        self.shapes.insert(id.0, Arc::clone(&image), image.len() + 64, epoch);
        Ok(image)
    }

    /// The server trusts the lengths and offsets in an image: one that is not what was stored would crash it. Where its hash cannot be
    /// looked up, that is not the image's fault, whose page has a checksum of its own.
    fn expect_as_stored(&self, id: ShapeId, image: &[u8]) -> Result<()> {
        let key = rows::shape_hash_key(rows::content_hash(image), id);
        match self.trx.get_newest(&index(rows::SHAPE_HASHES), &key, &mut Vec::new()) {
            Ok(false) => {
                Err(Error::CorruptFile { path: "catalog".into(), reason: format!("shape {id} is not what was stored") })
            }
            Ok(true) | Err(_) => Ok(()),
        }
    }
}
