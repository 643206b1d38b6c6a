//! Any bytes, read as manifests: a clear error or a result, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millwright_cli::{convert, documents};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(documents) = documents::parse(&"input".into(), bytes) {
        let first = convert::convert(documents);
        // Converting twice changes nothing.
        let text = first.documents.join("\n---\n");
        if let Ok(again) = documents::parse(&"input".into(), text.as_bytes()) {
            let second = convert::convert(again);
            assert!(second.warnings.is_empty(), "{:?}", second.warnings);
        }
    }
});
