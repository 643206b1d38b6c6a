//! A checker that accepts everything would pass every other test: here it must refuse.
