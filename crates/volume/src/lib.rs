//! A directory tree on a POSIX filesystem as operations on handles, made durable through an intent log; recovery.
