//! What the sessions' owner knows about the order in which transactions will commit.

/// Asked and told by the lock table. The numbers are those of [`super::TrxLocks::set_owner`]; 0 is nobody's.
///
/// A parallel replica has fixed the order of commits before its transactions run. Then a lock must not keep the earlier one
/// of two waiting for the later one, which itself waits for the earlier one's commit where no lock table sees it.
///
/// Called with mutexes of the lock table held, which keep both transactions where they are: their thds are alive. A method
/// must neither call the engine nor wait for anybody who may be inside it.
pub trait CommitOrder: Send + Sync {
    /// A request of `waiter` waits, or waits from now on too, for a lock or an earlier request of `holder`.
    fn waits(&self, waiter: usize, holder: usize) {
        let _ = (waiter, holder);
    }

    /// Whether the commits of the two have an order already, which gap locks need not bring about.
    fn is_fixed(&self, waiter: usize, holder: usize) -> bool {
        let _ = (waiter, holder);
        false
    }

    /// Which of two transactions of a deadlock should be its victim; `None` where their owner does not care.
    fn victim(&self, first: usize, second: usize) -> Option<Victim> {
        let _ = (first, second);
        None
    }
}

/// One of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The one named first.
    First,
    /// The other.
    Second,
}

/// Nobody fixes the order of commits.
pub struct Unordered;

impl CommitOrder for Unordered {}
