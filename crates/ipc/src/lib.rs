//! The control protocol between the command line and the daemon.
