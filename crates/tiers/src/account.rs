//! On whose account a thread of the daemon works: an application's thread, or
//! a mover. Set where an operation comes in, read where it reaches a tier, so
//! that the monitor tells foreground from background without every function on
//! the way carrying it.

use std::cell::Cell;

/// Who asked for what a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Account {
    /// The application's thread of this number; 0 where it is not known.
    Thread(u32),
    /// Something that moves data in the background.
    Mover,
}

thread_local! {
    static PRESENT: Cell<Account> = const { Cell::new(Account::Thread(0)) };
}

/// Who asked for what this thread does now.
pub fn present() -> Account {
    PRESENT.get()
}

/// Until it is dropped, this thread works on another's account.
#[derive(Debug)]
pub struct Acting(Account);

/// From now on this thread works for `account`.
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
