//! The page for people: static files, which read the status and its history as JSON. No build step makes them, and they
//! load nothing from elsewhere.

use axum::{Router, http::header::CONTENT_TYPE, routing::get};

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files: path, type, content.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("index.html")),
    ("/page.css", STYLE, include_str!("page.css")),
    ("/icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("/main.js", SCRIPT, include_str!("main.js")),
    ("/source.js", SCRIPT, include_str!("source.js")),
    ("/session.js", SCRIPT, include_str!("session.js")),
    ("/pipeline.js", SCRIPT, include_str!("pipeline.js")),
    ("/stream.js", SCRIPT, include_str!("stream.js")),
    ("/ranks.js", SCRIPT, include_str!("ranks.js")),
    ("/tables.js", SCRIPT, include_str!("tables.js")),
    ("/charts.js", SCRIPT, include_str!("charts.js")),
    ("/dom.js", SCRIPT, include_str!("dom.js")),
    ("/format.js", SCRIPT, include_str!("format.js")),
];

/// Routes the files.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, &(path, kind, content)| {
        router.route(path, get(move || async move { ([(CONTENT_TYPE, kind)], content) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_imports_is_served_and_none_is_loaded_from_elsewhere() {
        let has = |path: &str| FILES.iter().any(|(served, ..)| *served == path);
        for (path, _, content) in FILES {
            for part in content.split(['"', '\'']).filter(|part| part.starts_with("./")) {
                assert!(has(&part[1..]), "{path} uses `{part}`");
            }
            for elsewhere in ["http://", "https://", "//cdn", "innerHTML", "insertAdjacentHTML", "document.write"] {
                let found = content.replace("http://www.w3.org/2000/svg", "").contains(elsewhere);
                assert!(!found, "{path} has `{elsewhere}`");
            }
        }
    }
}
