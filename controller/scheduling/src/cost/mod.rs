//! Improving the cost.
use crate::{
    draft::{Bin, Drafts},
    problem::Problem,
    shard::Component,
    signature::Signatures,
};

pub(crate) fn improve<'p>(
    _problem: &'p Problem<'p>,
    _component: &Component,
    _signatures: &mut Signatures<'p>,
    _bins: &[Bin],
    _drafts: &mut Drafts,
) {
}
