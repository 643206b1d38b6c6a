//! Selector terms of a class as EC2 filters.
//!
//! Source: AWS specification 16.1, 16.3 and 17.1. Terms are alternatives, filters of one query hold
//! together; ids (and names of security groups) are joined into one query.

use std::collections::BTreeMap;

use millwright_api::ec2_node_class::{
    AmiSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm,
};

/// A filter of a `Describe` call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter {
    /// EC2's name of the filter.
    pub name: String,
    /// Alternatives.
    pub values: Vec<String>,
}

impl Filter {
    /// A filter with alternatives.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = String>) -> Self {
        Self {
            name: name.into(),
            values: values.into_iter().collect(),
        }
    }
}

/// One `DescribeImages` call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageQuery {
    /// Accounts whose images are considered; all when empty.
    pub owners: Vec<String>,
    /// Filters, which hold together.
    pub filters: Vec<Filter>,
}

fn by_tags(tags: &BTreeMap<String, String>) -> Vec<Filter> {
    tags.iter()
        .map(|(key, value)| match value.as_str() {
            "*" => Filter::new("tag-key", [key.clone()]),
            _ => Filter::new(format!("tag:{key}"), [value.clone()]),
        })
        .collect()
}

/// A query for all values of a field, unless there are none.
fn joined(name: &str, values: Vec<String>) -> Option<Vec<Filter>> {
    (!values.is_empty()).then(|| vec![Filter::new(name, values)])
}

/// Queries for the subnets of a class; the answer is the union. An id wins over tags in one term.
#[must_use]
pub fn subnet_queries(terms: &[SubnetSelectorTerm]) -> Vec<Vec<Filter>> {
    let (by_id, others): (Vec<_>, Vec<_>) = terms.iter().partition(|term| !term.id.is_empty());
    let ids = by_id.iter().map(|term| term.id.clone()).collect();
    let tags = others
        .iter()
        .filter(|term| !term.tags.is_empty())
        .map(|term| by_tags(&term.tags));
    joined("subnet-id", ids).into_iter().chain(tags).collect()
}

/// Queries for the security groups of a class; the answer is the union. In one term an id wins
/// over a name, and a name over tags.
#[must_use]
pub fn security_group_queries(terms: &[SecurityGroupSelectorTerm]) -> Vec<Vec<Filter>> {
    let mut ids = Vec::new();
    let mut names = Vec::new();
    let mut tags = Vec::new();
    for term in terms {
        if !term.id.is_empty() {
            ids.push(term.id.clone());
        } else if !term.name.is_empty() {
            names.push(term.name.clone());
        } else if !term.tags.is_empty() {
            tags.push(by_tags(&term.tags));
        }
    }
    joined("group-id", ids)
        .into_iter()
        .chain(joined("group-name", names))
        .chain(tags)
        .collect()
}

/// Queries for the images of a class without an alias. `resolved`: ids that `ssmParameter` terms
/// resolved to.
#[must_use]
pub fn image_queries(terms: &[AmiSelectorTerm], resolved: &[String]) -> Vec<ImageQuery> {
    let mut ids: Vec<String> = resolved.to_vec();
    let mut queries = Vec::new();
    for term in terms {
        if !term.id.is_empty() {
            ids.push(term.id.clone());
        } else if term.ssm_parameter.is_empty() && term.alias.is_empty() {
            queries.extend(image_query(term));
        }
    }
    let by_id = joined("image-id", ids).map(|filters| ImageQuery {
        owners: Vec::new(),
        filters,
    });
    by_id.into_iter().chain(queries).map(available).collect()
}

fn image_query(term: &AmiSelectorTerm) -> Option<ImageQuery> {
    let mut filters = by_tags(&term.tags);
    let mut owners = Vec::new();
    if !term.name.is_empty() {
        filters.push(Filter::new("name", [term.name.clone()]));
        // A bare name could be anybody's: only own images and Amazon's are considered.
        owners = vec!["self".to_owned(), "amazon".to_owned()];
    }
    if !term.owner.is_empty() {
        owners = vec![term.owner.clone()];
    }
    (!filters.is_empty() || !owners.is_empty()).then_some(ImageQuery { owners, filters })
}

/// Images that cannot be launched any more are of no use.
fn available(mut query: ImageQuery) -> ImageQuery {
    query
        .filters
        .push(Filter::new("state", ["available".to_owned()]));
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn shown(queries: &[Vec<Filter>]) -> Vec<String> {
        queries
            .iter()
            .map(|filters| {
                let parts: Vec<_> = filters
                    .iter()
                    .map(|f| format!("{}={}", f.name, f.values.join("|")))
                    .collect();
                parts.join("&")
            })
            .collect()
    }

    #[test]
    fn subnet_terms_are_alternatives_and_ids_share_a_query() {
        let term = |id: &str, pairs: &[(&str, &str)]| SubnetSelectorTerm {
            id: id.to_owned(),
            tags: tags(pairs),
        };
        let queries = subnet_queries(&[
            term("subnet-1", &[]),
            term("", &[("a", "b"), ("c", "*")]),
            term("subnet-2", &[("ignored", "x")]),
            term("", &[("d", "e*")]),
        ]);
        assert_eq!(
            shown(&queries),
            [
                "subnet-id=subnet-1|subnet-2",
                "tag:a=b&tag-key=c",
                "tag:d=e*"
            ]
        );
        assert!(subnet_queries(&[]).is_empty());
    }

    #[test]
    fn a_security_group_term_prefers_id_then_name_then_tags() {
        let term = |id: &str, name: &str, pairs: &[(&str, &str)]| SecurityGroupSelectorTerm {
            id: id.to_owned(),
            name: name.to_owned(),
            tags: tags(pairs),
        };
        let queries = security_group_queries(&[
            term("sg-1", "x", &[]),
            term("", "web*", &[("a", "b")]),
            term("", "", &[("a", "b")]),
            term("", "db", &[]),
        ]);
        assert_eq!(
            shown(&queries),
            ["group-id=sg-1", "group-name=web*|db", "tag:a=b"]
        );
    }

    #[test]
    fn image_terms_restrict_owners_only_for_names() {
        let term = |change: fn(&mut AmiSelectorTerm)| {
            let mut term = AmiSelectorTerm::default();
            change(&mut term);
            term
        };
        let queries = image_queries(
            &[
                term(|t| t.id = "ami-1".to_owned()),
                term(|t| t.name = "mine-*".to_owned()),
                term(|t| {
                    t.name = "theirs".to_owned();
                    t.owner = "123456789012".to_owned();
                }),
                term(|t| t.tags = tags(&[("a", "b")])),
                term(|t| t.ssm_parameter = "/p".to_owned()),
            ],
            &["ami-2".to_owned()],
        );
        let found: Vec<_> = queries
            .iter()
            .map(|q| {
                (
                    q.owners.join("|"),
                    shown(std::slice::from_ref(&q.filters)).remove(0),
                )
            })
            .collect();
        let expected = [
            ("", "image-id=ami-2|ami-1&state=available"),
            ("self|amazon", "name=mine-*&state=available"),
            ("123456789012", "name=theirs&state=available"),
            ("", "tag:a=b&state=available"),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(o, f)| ((*o).to_owned(), (*f).to_owned()))
            .collect();
        assert_eq!(found, expected);
    }
}
