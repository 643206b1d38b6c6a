//! A small writer of XML documents.
//!
//! Elements only (AWS uses no attributes but the namespace), names are constants, text is
//! escaped. Closures give the nesting, so an element cannot stay open.

use std::fmt::{Display, Write};

/// A document being written.
#[derive(Debug)]
pub(crate) struct Xml {
    out: String,
}

impl Xml {
    /// A document with one root element in a namespace.
    pub(crate) fn document(root: &str, namespace: &str, content: impl FnOnce(&mut Self)) -> String {
        let mut xml = Self {
            out: String::with_capacity(1_024),
        };
        xml.out
            .push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<");
        xml.out.push_str(root);
        if !namespace.is_empty() {
            xml.out.push_str(" xmlns=\"");
            xml.out.push_str(namespace);
            xml.out.push('"');
        }
        xml.out.push('>');
        content(&mut xml);
        xml.close(root);
        xml.out
    }

    /// An element with elements in it.
    pub(crate) fn element(&mut self, name: &str, content: impl FnOnce(&mut Self)) {
        self.open(name);
        content(self);
        self.close(name);
    }

    /// An element with text.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.open(name);
        escape(&mut self.out, text);
        self.close(name);
    }

    /// An element with text, if there is any.
    pub(crate) fn optional(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    /// An element with a number or a Boolean: nothing that needs escaping.
    pub(crate) fn value(&mut self, name: &str, value: impl Display) {
        self.element(name, |xml| {
            // Writing into a string cannot fail.
            let _infallible = write!(xml.out, "{value}");
        });
    }

    /// A list in EC2's form: every member is an `item`.
    pub(crate) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.element(name, |xml| {
            for item in items {
                xml.element("item", |xml| write(xml, item));
            }
        });
    }

    /// A list of texts in EC2's form.
    pub(crate) fn texts<'a>(&mut self, name: &str, items: impl IntoIterator<Item = &'a str>) {
        self.element(name, |xml| {
            for item in items {
                xml.text("item", item);
            }
        });
    }

    fn open(&mut self, name: &str) {
        self.out.push('<');
        self.out.push_str(name);
        self.out.push('>');
    }

    fn close(&mut self, name: &str) {
        self.out.push_str("</");
        self.out.push_str(name);
        self.out.push('>');
    }
}

fn escape(out: &mut String, text: &str) {
    // All special characters are ASCII, so a search by bytes finds character boundaries; by
    // characters it would take most of the time of a large answer.
    let special = |byte: &u8| matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\r');
    let mut rest = text;
    while let Some(at) = rest.as_bytes().iter().position(special) {
        let (plain, from_special) = rest.split_at(at);
        out.push_str(plain);
        out.push_str(match from_special.as_bytes().first() {
            Some(b'&') => "&amp;",
            Some(b'<') => "&lt;",
            Some(b'>') => "&gt;",
            Some(b'\r') => "&#13;",
            _ => "&quot;",
        });
        rest = from_special.get(1..).unwrap_or_default();
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::Xml;

    #[test]
    fn text_is_escaped_and_elements_nest() {
        let document = Xml::document("R", "urn:x", |xml| {
            xml.text("a", "1 < 2 & \"x\"");
            xml.list("set", [1, 2], |xml, n| xml.value("n", n));
            xml.optional("absent", None);
        });
        assert_eq!(
            document,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<R xmlns=\"urn:x\"><a>1 &lt; 2 &amp; \
             &quot;x&quot;</a><set><item><n>1</n></item><item><n>2</n></item></set></R>"
        );
    }
}
