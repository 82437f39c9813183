//! The machine: its memory, and which of its CPUs a thread may use.

use myriad_base::{Error, Result};
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

/// The machine's memory in bytes.
pub fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// A set of CPUs, by the numbers that the system gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// Reads numbers and ranges separated by commas, as in `0,2-3`. Spaces around them do not matter.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the reason: not such a list, or a CPU that this process may not use.
    pub fn parse(text: &str) -> Result<CpuList> {
        let wrong = |why: String| Error::invalid(format!("CPU list '{text}': {why}"));
        let allowed = sched_getaffinity(None).map_err(|e| wrong(format!("the system does not tell its CPUs: {e}")))?;
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let part = part.trim();
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                let number = if digits { text.parse::<usize>().ok() } else { None };
                number.ok_or_else(|| wrong(format!("'{part}' is neither a number nor a range such as 2-5")))
            };
            let (first, last) = (number(first.trim())?, number(last.trim())?);
            if first > last {
                return Err(wrong(format!("the range {part} runs backwards")));
            }
            // Checked before the loop: a list may name a range of any length.
            for cpu in first..=last {
                if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
                    return Err(wrong(format!("this process may not use CPU {cpu}")));
                }
                cpus.push(cpu);
            }
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(CpuList(cpus))
    }

    /// Keeps the calling thread on these CPUs until the result is dropped. Threads that it starts meanwhile stay there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn enter(&self) -> Result<OnCpus> {
        let failed = |e: rustix::io::Errno| Error::io("sched_setaffinity", "background threads", e.raw_os_error());
        let before = sched_getaffinity(None).map_err(failed)?;
        let mut set = CpuSet::new();
        self.0.iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(None, &set).map_err(failed)?;
        Ok(OnCpus { before })
    }
}

/// Gives the thread its CPUs back when dropped, which must happen in the thread that entered.
pub struct OnCpus {
    before: CpuSet,
}

impl Drop for OnCpus {
    fn drop(&mut self) {
        // The set was in force a moment ago; if the system has taken its CPUs away since, the thread stays where it is.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
    }

    #[test]
    fn lists_are_read_or_refused() {
        let first = allowed()[0];
        assert_eq!(CpuList::parse(&format!("{first}")).unwrap(), CpuList(vec![first]));
        assert_eq!(CpuList::parse(&format!(" {first} , {first}-{first}")).unwrap(), CpuList(vec![first]));
        for bad in ["", ",", "x", "-1", "1-", "0,,0", "+0", "0x0", "99999999999999999999"] {
            let message = CpuList::parse(bad).unwrap_err().to_string();
            assert!(message.contains("neither a number nor a range"), "{bad}: {message}");
        }
        assert!(CpuList::parse("3-2").unwrap_err().to_string().contains("backwards"));
        assert!(CpuList::parse("0-4294967295").unwrap_err().to_string().contains("may not use CPU"));
        assert!(CpuList::parse("1000000").unwrap_err().to_string().contains("may not use CPU 1000000"));
    }

    #[test]
    fn threads_started_inside_stay_there() {
        std::thread::spawn(|| {
            let before = allowed();
            let list = CpuList(vec![*before.last().unwrap()]);
            let inside = list.enter().unwrap();
            let (started, may_look) = std::sync::mpsc::channel::<()>();
            let child = std::thread::spawn(move || {
                let _ = may_look.recv();
                allowed()
            });
            drop(inside);
            assert_eq!(allowed(), before);
            drop(started);
            assert_eq!(child.join().unwrap(), list.0);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn there_is_memory() {
        assert!(memory_bytes() > 64 << 20);
    }
}
