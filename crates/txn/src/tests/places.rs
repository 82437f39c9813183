//! A cursor whose transaction changes rows of the leaf in which it stands.

use super::*;
use myriad_base::random::Random;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// Something is done to the row on which the cursor stands, or beside it.
fn change(rig: &Rig, t: &mut Trx, random: &mut Random, at: u64, model: &mut BTreeMap<u64, Vec<u8>>) {
    let payload = |random: &mut Random, len: usize| vec![random.below(256) as u8; len];
    let old = model[&at].clone();
    match random.below(8) {
        0 => {}
        1 => {
            let new = payload(random, old.len());
            rig.update(t, &key(at), &new).unwrap();
            model.insert(at, new);
        }
        // Near the payload's begin, and away from it.
        2 | 3 => {
            let mut new = old.clone();
            let from = random.below(new.len() as u64) as usize;
            new[from] ^= 1;
            rig.update(t, &key(at), &new).unwrap();
            model.insert(at, new);
        }
        4 => {
            let len = 1 + random.below(150) as usize;
            let new = payload(random, len);
            rig.update(t, &key(at), &new).unwrap();
            model.insert(at, new);
        }
        5 => {
            rig.delete(t, &key(at)).unwrap();
            model.remove(&at);
        }
        6 => {
            let beside = if random.one_in(2) { at - 1 } else { at + 1 };
            if let std::collections::btree_map::Entry::Vacant(place) = model.entry(beside) {
                let new = payload(random, 20);
                rig.insert(t, &key(beside), &new).unwrap();
                place.insert(new);
            }
        }
        _ => {
            let savepoint = t.savepoint();
            rig.update(t, &key(at), &payload(random, old.len())).unwrap();
            t.rollback_to(savepoint).unwrap();
        }
    }
}

#[test]
fn rows_change_under_a_locking_cursor() {
    for seed in 0..40 {
        let (rig, mut random) = (Rig::small(), Random::from_seed(seed));
        let mut t = rig.trx();
        let mut model = BTreeMap::new();
        for i in 1..300u64 {
            let payload = vec![i as u8; 1 + random.below(60) as usize];
            rig.insert(&mut t, &key(i * 10), &payload).unwrap();
            model.insert(i * 10, payload);
        }
        t.commit(Durability::Configured).unwrap();
        for _ in 0..2 {
            let forward = random.one_in(2);
            let mut c = Cursor::new(rig.rows, locking(Strength::X));
            let mut more = c.seek(&mut t, if forward { Seek::First } else { Seek::Last }, &[]).unwrap();
            let mut last = if forward { 0 } else { u64::MAX };
            loop {
                let next = match forward {
                    true => model.range((Excluded(last), Unbounded)).next(),
                    false => model.range(..last).next_back(),
                };
                let found = more.then(|| (u64::from_be_bytes(c.key().try_into().unwrap()), c.value()));
                assert_eq!(found, next.map(|(at, payload)| (*at, &payload[..])), "seed {seed}, after {last}");
                let Some((at, _)) = found else { break };
                last = at;
                change(&rig, &mut t, &mut random, at, &mut model);
                more = if forward { c.next(&mut t) } else { c.prev(&mut t) }.unwrap();
            }
            t.commit(Durability::Configured).unwrap();
        }
        let rows: Vec<_> = model.into_iter().map(|(at, payload)| (key(at), payload)).collect();
        assert_eq!(rig.scan(&mut t, &rig.rows, true), rows, "seed {seed}");
        t.commit(Durability::Configured).unwrap();
        let rig = rig.crashed(seed, 400);
        assert_eq!(rig.scan(&mut rig.trx(), &rig.rows, true), rows, "seed {seed}");
    }
}
