//! Checks beside users.
