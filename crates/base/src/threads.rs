//! How the engine's threads begin, and who is told of them: a server that the engine is part of lists all of its own.

use std::io::Result;
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Told of a thread of the engine's by that thread itself.
pub trait Threads: Send + Sync {
    /// The calling thread, of this name, begins its work.
    fn begins(&self, name: &str);
    /// It has ended it.
    fn ends(&self);
}

static THREADS: OnceLock<Box<dyn Threads>> = OnceLock::new();

/// From now on `threads` is told of those that begin in this process. It is told for good: a later call does nothing.
pub fn tell(threads: Box<dyn Threads>) {
    let _ = THREADS.set(threads);
}

/// Told of the end, also of one by a panic.
struct Begun(&'static dyn Threads);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.ends();
    }
}

/// Starts a thread of this name.
///
/// # Errors
/// The system gives none.
pub fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(told_of(name, work))
}

/// As [`spawn`], for a thread that ends within `scope`.
///
/// # Errors
/// The system gives none.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.into()).spawn_scoped(scope, told_of(name, work))
}

/// The work of a new thread that others are told of.
pub fn told_of<T>(name: &str, work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let name = name.to_string();
    move || {
        let _begun = THREADS.get().map(|threads| {
            threads.begins(&name);
            Begun(&**threads)
        });
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    struct List(Arc<Mutex<Vec<String>>>);

    impl Threads for List {
        fn begins(&self, name: &str) {
            self.0.lock().push(name.into());
        }

        fn ends(&self) {
            self.0.lock().push("end".into());
        }
    }

    #[test]
    fn a_thread_is_told_of_from_begin_to_end() {
        assert_eq!(told_of("before", || 1)(), 1);
        let told = Arc::new(Mutex::new(Vec::new()));
        tell(Box::new(List(Arc::clone(&told))));
        assert_eq!(spawn("a", || 2).unwrap().join().unwrap(), 2);
        let failed = std::thread::scope(|scope| {
            let work = || panic!("of the test");
            spawn_scoped::<()>(scope, "b", work).unwrap().join().is_err()
        });
        assert!(failed);
        assert_eq!(*told.lock(), ["a", "end", "b", "end"]);
    }
}
