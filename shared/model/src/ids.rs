//! Typed names. All are cheap to clone (one shared allocation) and order by their text.

use std::{fmt, ops::Deref, sync::Arc};

/// A shared, immutable piece of text: a label key, a label value, a zone, an instance type name.
pub type Name = Arc<str>;

macro_rules! name_type {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Name);

        impl $name {
            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
        impl From<Name> for $name {
            fn from(text: Name) -> Self {
                Self(text)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    )*};
}

name_type! {
    /// Name of a Node, or of the NodeClaim that stands for it until the Node has registered.
    NodeName;
    /// Name of a NodeClaim.
    NodeClaimName;
    /// Name of a NodePool.
    NodePoolName;
    /// `spec.providerID` of a Node, `status.providerID` of a NodeClaim: what joins the two with
    /// the instance.
    ProviderId;
    /// `metadata.uid` of a Pod.
    PodUid;
}

/// Namespace and name of a Pod; displays as `namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Namespace of the pod.
    pub namespace: Name,
    /// Name of the pod, unique in its namespace.
    pub name: Name,
}

impl PodKey {
    /// Builds a key from its two parts.
    #[must_use]
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
