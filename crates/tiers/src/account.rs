//! The account that a thread of the daemon works for: an application's thread,
//! or a mover. Set where an operation arrives, and read where it reaches a
//! tier, so that the monitor can distinguish foreground from background without
//! a parameter on every function between.

use std::cell::Cell;

/// The origin of a thread's current work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Account {
    /// The application's thread of this number; 0 where it is not known.
    Thread(u32),
    /// A mover or a job.
    Mover,
}

thread_local! {
    static PRESENT: Cell<Account> = const { Cell::new(Account::Thread(0)) };
}

/// The account of the current thread's work.
pub fn present() -> Account {
    PRESENT.get()
}

/// Makes this thread work for another account until it is dropped.
#[derive(Debug)]
pub struct Acting(Account);

/// Makes this thread work for `account`.
#[must_use]
pub fn act_for(account: Account) -> Acting {
    Acting(PRESENT.replace(account))
}

impl Drop for Acting {
    fn drop(&mut self) {
        PRESENT.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_nest_and_end() {
        let outer = act_for(Account::Thread(7));
        {
            let _inner = act_for(Account::Mover);
            assert_eq!(present(), Account::Mover);
            std::thread::spawn(|| assert_eq!(present(), Account::Thread(0))).join().unwrap();
        }
        assert_eq!(present(), Account::Thread(7));
        drop(outer);
        assert_eq!(present(), Account::Thread(0));
    }
}
