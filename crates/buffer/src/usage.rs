//! Which pages stay in memory: the marks by which the clock hand goes.
//!
//! A page that is used in a later moment ([`MOMENT_MS`]) than that in which it was read, or after the hand has passed it, is *hot*. Uses
//! within that moment do not count: a scan uses each of its pages several times. The hand leaves hot pages alone while they are at most
//! [`HOT_PART`] of those it meets. So what is read once, be it more than all memory, takes the place of its like; and what was hot long
//! ago goes as others become hot.

use crossbeam_utils::CachePadded;
use myriad_base::clock::Clock;
use std::sync::atomic::{AtomicU32, AtomicU8, Ordering};
use std::sync::Arc;

/// A frame untouched since the clock hand last passed: the next victim.
pub(crate) const USAGE_COLD: u8 = 0;
/// Read while nobody wanted it, or ahead of a use that had not come when the clock hand passed: a victim as well, but its first use
/// does not make it hot.
pub(crate) const USAGE_UNWANTED: u8 = 1;
/// Read ahead of its first use, which makes it a page that was read then.
pub(crate) const USAGE_AHEAD: u8 = 2;
/// Used again.
const USAGE_HOT: u8 = 3;
/// Was hot when the clock hand passed, and there were too many such.
const USAGE_WARM: u8 = 4;
/// This and those above, one for each moment and then from the first on: read in that moment.
const USAGE_READ: u8 = 5;

/// What counts as one use: longer than a scan stays with a leaf, shorter than the hand takes for all frames.
const MOMENT_MS: u128 = 64;
/// Part of the pages in memory that may stay hot, in 1/8: as much as InnoDB's list of young pages holds.
const HOT_PART: u32 = 5;
/// After so many frames the hand's memory of those it met is halved.
const MET_MAX: u32 = 1024;

/// Whether a frame may be given to another page.
pub(crate) const fn is_victim(usage: u8) -> bool {
    matches!(usage, USAGE_COLD | USAGE_UNWANTED)
}

/// The mark of a frame that is used; `now` is that of one read now.
#[inline]
fn used(usage: u8, now: u8) -> u8 {
    match usage {
        USAGE_AHEAD | USAGE_UNWANTED => now,
        _ if usage == now => now,
        _ => USAGE_HOT,
    }
}

/// The mark of a frame that the clock hand passes.
const fn aged(usage: u8) -> u8 {
    match usage {
        USAGE_AHEAD | USAGE_UNWANTED => USAGE_UNWANTED,
        USAGE_HOT => USAGE_WARM,
        _ => USAGE_COLD,
    }
}

/// Marks a use. Writes only when that changes something, so a hot frame's cache line stays shared.
#[inline]
pub(crate) fn touch(usage: &AtomicU8, now: &Now) {
    let before = usage.load(Ordering::Relaxed);
    if before != USAGE_HOT {
        let after = used(before, now.mark());
        if after != before {
            usage.store(after, Ordering::Relaxed);
        }
    }
}

/// The moment that it is.
pub(crate) struct Now {
    clock: Arc<dyn Clock>,
    mark: CachePadded<AtomicU8>,
}

impl Now {
    pub fn new(clock: Arc<dyn Clock>) -> Now {
        Now { clock, mark: CachePadded::new(AtomicU8::new(USAGE_READ)) }
    }

    /// The mark of a frame whose page is read, or formatted, now.
    #[inline]
    pub fn mark(&self) -> u8 {
        self.mark.load(Ordering::Relaxed)
    }

    /// Looks at the clock; called whenever frames are freed, and once a second. Without background threads nobody does, and only the hand makes hot.
    pub fn look(&self) {
        let marks = u128::from(u8::MAX - USAGE_READ) + 1;
        let mark = USAGE_READ + (self.clock.now().as_millis() / MOMENT_MS % marks) as u8;
        if self.mark() != mark {
            self.mark.store(mark, Ordering::Relaxed);
        }
    }
}

/// What a clock hand has met of late: frames, and in the upper half those of them that it left hot. An estimate: of two threads that
/// count at once one may be forgotten.
#[derive(Default)]
pub(crate) struct Met(AtomicU32);

impl Met {
    /// The hand meets a frame in use: whether it is the next victim, else it is aged or left hot.
    pub fn is_victim(&self, usage: &AtomicU8) -> bool {
        let before = usage.load(Ordering::Relaxed);
        let seen = self.0.load(Ordering::Relaxed);
        let (mut met, mut hot) = (seen & 0xffff, seen >> 16);
        let stays = before == USAGE_HOT && hot * 8 <= met * HOT_PART;
        met += 1;
        hot += u32::from(stays);
        if met == MET_MAX {
            (met, hot) = (met / 2, hot / 2);
        }
        self.0.store(hot << 16 | met, Ordering::Relaxed);
        if !stays && !is_victim(before) {
            usage.store(aged(before), Ordering::Relaxed);
        }
        is_victim(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_base::clock::ManualClock;

    #[test]
    fn uses_within_the_moment_of_the_read_do_not_count() {
        let now = Now::new(Arc::new(ManualClock::default()));
        let page = AtomicU8::new(now.mark());
        (0..5).for_each(|_| touch(&page, &now));
        assert_eq!(page.load(Ordering::Relaxed), now.mark());
        now.mark.fetch_add(1, Ordering::Relaxed);
        touch(&page, &now);
        assert_eq!(page.load(Ordering::Relaxed), USAGE_HOT);
    }

    #[test]
    fn the_first_use_of_a_page_read_ahead_makes_it_one_that_is_read_then() {
        let (now, hand) = (Now::new(Arc::new(ManualClock::default())), Met::default());
        let page = AtomicU8::new(USAGE_AHEAD);
        assert!(!hand.is_victim(&page) && hand.is_victim(&page));
        (0..5).for_each(|_| touch(&page, &now));
        assert_eq!(page.load(Ordering::Relaxed), now.mark());
        // Used again behind the hand's back.
        assert!(!hand.is_victim(&page));
        touch(&page, &now);
        assert_eq!(page.load(Ordering::Relaxed), USAGE_HOT);
    }

    #[test]
    fn no_more_than_their_part_of_the_frames_stay_hot() {
        let frames: Vec<AtomicU8> = (0..8_000).map(|_| AtomicU8::new(USAGE_HOT)).collect();
        let hand = Met::default();
        for round in 0..4 {
            let victims = frames.iter().filter(|frame| hand.is_victim(frame)).count();
            let hot = frames.iter().filter(|frame| frame.load(Ordering::Relaxed) == USAGE_HOT).count();
            assert!((4_900..5_100).contains(&hot), "{hot}");
            assert_eq!(victims, if round < 2 { 0 } else { 8_000 - hot }, "round {round}");
        }
    }
}
