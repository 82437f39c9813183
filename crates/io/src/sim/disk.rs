//! The simulated disk's state: names, files, faults.

use super::content::{Content, Pending, Survival};
use super::lost_write::Holdup;
use super::{CallKind, Fault, CALL_KINDS};
use crate::{Create, OpenMode};
use myriad_base::random::Random;
use myriad_base::{Error, Result};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) type NodeId = u64;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const EEXIST: i32 = 17;
const EISDIR: i32 = 21;
const ENOSPC: i32 = 28;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Dir,
    File(NodeId),
}

/// A change of names that a sync of a directory makes durable.
#[derive(Clone)]
enum NameChange {
    Set(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Entry>) {
        match self {
            NameChange::Set(path, entry) => {
                names.insert(path.clone(), *entry);
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to) => {
                if let Some(entry) = names.remove(from) {
                    names.insert(to.clone(), entry);
                }
            }
        }
    }

    fn touches(&self, dir: &Path) -> bool {
        match self {
            NameChange::Set(path, _) | NameChange::Remove(path) => path.parent() == Some(dir),
            NameChange::Rename(from, to) => from.parent() == Some(dir) || to.parent() == Some(dir),
        }
    }
}

#[derive(Clone, Default)]
struct Node {
    /// What reads see.
    live: Content,
    /// What is durable.
    synced: Content,
    /// What leads from `synced` to `live`.
    pending: Vec<Pending>,
}

struct Injected {
    kind: CallKind,
    path: String,
    countdown: u64,
    fault: Fault,
    sticky: bool,
}

pub(super) struct Disk {
    nodes: HashMap<NodeId, Node>,
    next_node: NodeId,
    names: BTreeMap<PathBuf, Entry>,
    durable_names: BTreeMap<PathBuf, Entry>,
    name_changes: Vec<NameChange>,
    pub(super) locks: HashSet<PathBuf>,
    pub(super) calls: [u64; CALL_KINDS],
    faults: Vec<Injected>,
    /// Changing calls left until the power goes.
    power: Option<u64>,
    off: bool,
    pub(super) capacity: Option<u64>,
    /// Room is set aside by writing zeros.
    pub(super) no_fallocate: bool,
    pub(super) holdup: Option<Arc<Holdup>>,
    pub(super) random: Random,
}

fn failed(op: &'static str, path: &Path, errno: i32) -> Error {
    Error::io(op, path.display().to_string(), errno)
}

impl Disk {
    pub(super) fn new(seed: u64) -> Disk {
        Disk {
            nodes: HashMap::new(),
            next_node: 1,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            locks: HashSet::new(),
            calls: [0; CALL_KINDS],
            faults: Vec::new(),
            power: None,
            off: false,
            capacity: None,
            no_fallocate: false,
            holdup: None,
            random: Random::from_seed(seed),
        }
    }

    pub(super) fn crash(&self, seed: u64) -> Disk {
        let mut new = Disk::new(seed);
        let survival = Survival::pick(&mut new.random);
        let mut names = self.durable_names.clone();
        let kept = match survival {
            Survival::Nothing => 0,
            Survival::Everything => self.name_changes.len(),
            Survival::Some => new.random.below(self.name_changes.len() as u64 + 1) as usize,
        };
        for change in &self.name_changes[..kept] {
            change.apply(&mut names);
        }
        for entry in names.values() {
            let Entry::File(id) = entry else { continue };
            let node = &self.nodes[id];
            let mut content = node.synced.clone();
            survival.apply(&node.pending, &mut content, &mut new.random);
            new.nodes.insert(*id, Node { live: content.clone(), synced: content, pending: Vec::new() });
        }
        new.next_node = self.next_node;
        new.capacity = self.capacity;
        new.names.clone_from(&names);
        new.durable_names = names;
        new
    }

    pub(super) fn kill(&self, seed: u64) -> Disk {
        Disk {
            nodes: self.nodes.clone(),
            next_node: self.next_node,
            names: self.names.clone(),
            durable_names: self.durable_names.clone(),
            name_changes: self.name_changes.clone(),
            capacity: self.capacity,
            no_fallocate: self.no_fallocate,
            ..Disk::new(seed)
        }
    }

    pub(super) fn power_off_after(&mut self, nth: Option<u64>) {
        self.power = nth;
    }

    pub(super) fn is_off(&self) -> bool {
        self.off
    }

    pub(super) fn inject(&mut self, kind: CallKind, path: &str, nth: u64, fault: Fault, sticky: bool) {
        self.faults.push(Injected { kind, path: path.into(), countdown: nth, fault, sticky });
    }

    pub(super) fn clear_faults(&mut self) {
        self.faults.clear();
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.nodes.values().map(|n| n.live.len).sum()
    }

    /// Counts the call; the fault that hits it, or the error when the power is off.
    fn enter(&mut self, kind: CallKind, op: &'static str, path: &Path) -> Result<Option<Fault>> {
        self.calls[kind as usize] += 1;
        if !matches!(kind, CallKind::Read | CallKind::Open) {
            match &mut self.power {
                Some(0) => self.off = true,
                Some(n) => *n -= 1,
                None => {}
            }
        }
        if self.off {
            return Err(failed(op, path, EIO));
        }
        let name = path.to_string_lossy();
        let mut hit = None;
        self.faults.retain_mut(|f| {
            if f.kind != kind || !name.contains(&f.path) {
                return true;
            }
            if f.countdown > 0 {
                f.countdown -= 1;
                return true;
            }
            hit = hit.or(Some(f.fault));
            f.sticky
        });
        match hit {
            Some(Fault::Eio) => Err(failed(op, path, EIO)),
            Some(Fault::Emfile) => Err(failed(op, path, EMFILE)),
            Some(Fault::Enospc) => Err(failed(op, path, ENOSPC)),
            other => Ok(other),
        }
    }

    /// Directories directly under the root are always there.
    fn is_dir(&self, path: &Path) -> bool {
        self.names.get(path) == Some(&Entry::Dir) || path.parent().is_none_or(|p| p.parent().is_none())
    }

    fn check_parent(&self, op: &'static str, path: &Path) -> Result<()> {
        match path.parent() {
            Some(parent) if !self.is_dir(parent) => Err(failed(op, path, ENOENT)),
            _ => Ok(()),
        }
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.name_changes.push(change);
    }

    pub(super) fn open(&mut self, path: &Path, mode: OpenMode) -> Result<NodeId> {
        self.enter(CallKind::Open, "open", path)?;
        match (self.names.get(path), mode.create) {
            (Some(Entry::Dir), _) => Err(failed("open", path, EISDIR)),
            (Some(Entry::File(_)), Create::New) => Err(failed("open", path, EEXIST)),
            (Some(Entry::File(id)), _) => Ok(*id),
            (None, Create::No) => Err(failed("open", path, ENOENT)),
            (None, _) => {
                self.check_parent("open", path)?;
                let id = self.next_node;
                self.next_node += 1;
                self.nodes.insert(id, Node::default());
                self.change_name(NameChange::Set(path.into(), Entry::File(id)));
                Ok(id)
            }
        }
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> Result<()> {
        self.enter(CallKind::CreateDir, "mkdir", path)?;
        if self.is_dir(path) {
            return Ok(());
        }
        if self.names.contains_key(path) {
            return Err(failed("mkdir", path, EEXIST));
        }
        self.check_parent("mkdir", path)?;
        self.change_name(NameChange::Set(path.into(), Entry::Dir));
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> Result<()> {
        if self.enter(CallKind::Remove, "unlink", path)?.is_some() {
            return Ok(());
        }
        match self.names.get(path) {
            None => Ok(()),
            Some(Entry::Dir) => Err(failed("unlink", path, EISDIR)),
            Some(Entry::File(_)) => {
                self.change_name(NameChange::Remove(path.into()));
                Ok(())
            }
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        if self.enter(CallKind::Rename, "rename", from)?.is_some() {
            return Ok(());
        }
        if !matches!(self.names.get(from), Some(Entry::File(_))) {
            return Err(failed("rename", from, ENOENT));
        }
        self.check_parent("rename", to)?;
        self.change_name(NameChange::Rename(from.into(), to.into()));
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> Result<()> {
        if self.enter(CallKind::SyncDir, "fsync", dir)?.is_some() {
            return Ok(());
        }
        if !self.is_dir(dir) {
            return Err(failed("fsync", dir, ENOENT));
        }
        // A journal commits what precedes as well.
        if let Some(last) = self.name_changes.iter().rposition(|c| c.touches(dir)) {
            for change in self.name_changes.drain(..=last) {
                change.apply(&mut self.durable_names);
            }
        }
        Ok(())
    }

    pub(super) fn exists(&mut self, path: &Path) -> Result<bool> {
        if self.off {
            return Err(failed("stat", path, EIO));
        }
        Ok(self.names.contains_key(path) || self.is_dir(path))
    }

    pub(super) fn list_dir(&mut self, path: &Path) -> Result<Vec<String>> {
        if self.off {
            return Err(failed("list", path, EIO));
        }
        if !self.is_dir(path) {
            return Err(failed("list", path, ENOENT));
        }
        let inside = self.names.keys().filter(|name| name.parent() == Some(path));
        Ok(inside.filter_map(|name| name.file_name()?.to_str()).map(str::to_owned).collect())
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("an open file has a node")
    }

    pub(super) fn read(&mut self, id: NodeId, path: &Path, buf: &mut [u8], off: u64) -> Result<usize> {
        let fault = self.enter(CallKind::Read, "read", path)?;
        let n = self.node(id).live.read(off, buf);
        if fault == Some(Fault::FlipBit) && n > 0 {
            flip(&mut buf[..n], &mut self.random);
        }
        Ok(n)
    }

    pub(super) fn len(&mut self, id: NodeId, path: &Path) -> Result<u64> {
        if self.off {
            return Err(failed("fstat", path, EIO));
        }
        Ok(self.node(id).live.len)
    }

    pub(super) fn change(
        &mut self,
        id: NodeId,
        kind: CallKind,
        op: &'static str,
        path: &Path,
        mut change: Pending,
    ) -> Result<()> {
        let was_off = self.off;
        let fault = match self.enter(kind, op, path) {
            Ok(fault) => fault,
            Err(e) => {
                if self.off && !was_off {
                    // The power went while this was on its way.
                    self.node(id).pending.push(change);
                }
                return Err(e);
            }
        };
        let len = self.node(id).live.len;
        let growth = change.len_after(len).saturating_sub(len);
        if self.capacity.is_some_and(|max| self.used_bytes() + growth > max) && growth > 0 {
            return Err(failed(op, path, ENOSPC));
        }
        if let Pending::Write { data, .. } = &mut change {
            match fault {
                Some(Fault::FlipBit) if !data.is_empty() => flip(data, &mut self.random),
                Some(Fault::ShortWrite) => {
                    let n = self.random.below(data.len() as u64 + 1) as usize;
                    *data = data[..n].into();
                }
                _ => {}
            }
        } else if fault.is_some() {
            return Ok(());
        }
        let node = self.node(id);
        change.apply(&mut node.live);
        if fault != Some(Fault::Lost) {
            node.pending.push(change);
        }
        match fault {
            Some(Fault::ShortWrite) => Err(failed(op, path, EIO)),
            _ => Ok(()),
        }
    }

    pub(super) fn sync(&mut self, id: NodeId, path: &Path) -> Result<()> {
        let was_off = self.off;
        let entered = self.enter(CallKind::Sync, "fdatasync", path);
        let off = self.off;
        let Disk { nodes, random, .. } = self;
        let node = nodes.get_mut(&id).expect("an open file has a node");
        match entered {
            Ok(None) => {
                for change in node.pending.drain(..) {
                    change.apply(&mut node.synced);
                }
                Ok(())
            }
            Ok(Some(_)) => Ok(()),
            Err(e) => {
                if !off && !was_off {
                    // Linux marks what it could not write as clean: a later sync knows nothing of it.
                    Survival::Some.apply(&std::mem::take(&mut node.pending), &mut node.synced, random);
                }
                Err(e)
            }
        }
    }

    fn node_at(&mut self, path: &Path) -> Result<&mut Node> {
        match self.names.get(path) {
            Some(&Entry::File(id)) => Ok(self.node(id)),
            _ => Err(failed("open", path, ENOENT)),
        }
    }

    pub(super) fn flip_bit(&mut self, path: &Path, offset: u64, bit: u8) -> Result<()> {
        let mut byte = [0];
        self.node_at(path)?.live.read(offset, &mut byte);
        self.scribble(path, offset, &[byte[0] ^ 1 << (bit % 8)])
    }

    pub(super) fn scribble(&mut self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        let node = self.node_at(path)?;
        for change in node.pending.drain(..) {
            change.apply(&mut node.synced);
        }
        node.live.write(offset, bytes);
        node.synced.write(offset, bytes);
        Ok(())
    }

    pub(super) fn truncate(&mut self, path: &Path, len: u64) -> Result<()> {
        let node = self.node_at(path)?;
        for change in node.pending.drain(..) {
            change.apply(&mut node.synced);
        }
        node.live.set_len(len);
        node.synced.set_len(len);
        Ok(())
    }
}

fn flip(bytes: &mut [u8], random: &mut Random) {
    let at = random.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << random.below(8);
}
