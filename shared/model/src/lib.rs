//! The vocabulary and arithmetic of Millwright: pure values, no input or output
