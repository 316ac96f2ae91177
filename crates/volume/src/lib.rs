//! The file system over tiers: namespace, index, placement, recovery.
