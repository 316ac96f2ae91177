//! The FUSE front end: translates kernel requests to the file-system trait.
