//! NFSv4.1 and 4.2 client: sessions, slots, compounds; archive extraction.
