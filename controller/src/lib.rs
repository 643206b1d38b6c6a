//! The leader-elected controller: composition of the parts
