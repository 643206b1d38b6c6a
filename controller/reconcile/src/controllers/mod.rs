//! What `millwright-lifecycle` decides, carried out.
