//! The dashboard: what the daemon knows, as pages for the person at the browser.
//!
//! ```text
//! Request ─▶ gate (Origin, cookie, token behind it) ─▶ route ─▶ Source, for this principal ─▶ view ─▶ pages ─▶ Response
//!                │ login, logout, one-time link          │                                     ▲
//!                └─ csrf of every form ──────────────────┼─ cancel                      Text: escaped, cut
//!                                                        └─ live ─▶ "changed" ─▶ the script fetches the page again
//! ```
//!
//! Pages are rendered here and work without a script. The script does one thing more: it puts the new `<main>` in the place of
//! the old one when the server says that something has changed.
//!
//! **Invariants:** what comes from outside is a [`Text`] and leaves as text: there is no way from it to markup, and none to an
//! address but through `href`. No page is made without a principal, and [`Source`] is asked for nobody else's. Whatever is not
//! there and whatever is another's look the same. Nothing changes without a token of the login in the form. Every table here has a
//! bound. Nothing is loaded from elsewhere.
//!
//! Read `dashboard.rs` first.

mod assets;
mod dashboard;
mod gate;
mod href;
mod layout;
mod live;
mod pages;
mod respond;
mod route;
mod source;
mod text;
mod time;
pub mod view;

pub use dashboard::{Dashboard, Options};
pub use gate::{Auth, PrincipalOf};
pub use respond::Body;
pub use route::{CallFilter, Key, Topic};
pub use source::{Beat, CancelOutcome, Source, Trouble};
pub use text::Text;
