//! The API types of Karpenter and Millwright: kinds, schemas, defaults, validation rules
