//! Who is told of the engine's threads: a server that the engine is part of lists all of its own.

use std::sync::OnceLock;

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
        assert_eq!(std::thread::spawn(told_of("a", || 2)).join().unwrap(), 2);
        assert!(std::thread::spawn(told_of("b", || panic!("of the test"))).join().is_err());
        assert_eq!(*told.lock(), ["a", "end", "b", "end"]);
    }
}
