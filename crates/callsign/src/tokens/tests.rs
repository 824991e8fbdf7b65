use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn state() -> (tempfile::TempDir, StateDir) {
    let root = tempfile::tempdir().unwrap();
    let state = StateDir::open(root.path().join("s")).unwrap();
    (root, state)
}

fn principal(name: &str) -> Principal {
    Principal::new(name).unwrap()
}

fn clear(state: &StateDir) -> String {
    state.read(CLEAR).unwrap().unwrap().trim_end().to_owned()
}

#[test]
fn a_token_lets_its_principal_in_until_it_is_revoked() {
    let (_root, state) = state();
    let tokens = Tokens::open(&state).unwrap();
    let ann = tokens.create(&principal("ann"), 1).unwrap();
    let bob = tokens.create(&principal("bob"), 2).unwrap();
    assert_eq!(tokens.authenticate(ann.expose()), Some(principal("ann")));
    assert_eq!(tokens.authenticate(bob.expose()), Some(principal("bob")));
    let known = |name, created_at| TokenInfo { name: principal(name), created_at };
    assert_eq!(tokens.list().unwrap(), [known("ann", 1), known("bob", 2)]);
    tokens.revoke(&principal("ann")).unwrap();
    assert_eq!(tokens.authenticate(ann.expose()), None);
    assert_eq!(tokens.authenticate(bob.expose()), Some(principal("bob")));
    for wrong in
        ["", "cs_", "ann", &bob.expose()[..20], &format!("{} ", bob.expose()), &bob.expose().to_lowercase()]
    {
        assert_eq!(tokens.authenticate(wrong), None, "{wrong:?}");
    }
}

#[test]
fn only_the_hash_is_written_down() {
    let (_root, state) = state();
    let tokens = Tokens::open(&state).unwrap();
    let ann = tokens.create(&principal("ann"), 7).unwrap();
    assert!(ann.expose().starts_with("cs_") && ann.expose().len() == 3 + 43, "{}", ann.expose());
    let text = state.read("tokens.json").unwrap().unwrap();
    assert!(!text.contains(&ann.expose()[3..]));
    assert_eq!(format!("{ann:?}"), "Secret(..)");
    let mode = fs::metadata(state.file("tokens.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_running_daemon_sees_what_a_command_changed_within_a_second() {
    let (_root, state) = state();
    let start = Instant::now();
    let at = |minutes| start + Duration::from_mins(minutes);
    let daemon = Tokens::open(&state).unwrap();
    let command = Tokens::open(&state).unwrap();
    let ann = command.create(&principal("ann"), 1).unwrap();
    assert_eq!(daemon.authenticate_at(ann.expose(), start), None, "it looks once a second");
    assert_eq!(daemon.authenticate_at(ann.expose(), at(2)), Some(principal("ann")));
    command.revoke(&principal("ann")).unwrap();
    assert_eq!(daemon.authenticate_at(ann.expose(), at(4)), None);
    let bob = command.create(&principal("bob"), 1).unwrap();
    assert_eq!(daemon.authenticate_at(bob.expose(), at(6)), Some(principal("bob")));
    // Fails closed.
    state.write("tokens.json", b"{").unwrap();
    assert_eq!(daemon.authenticate_at(bob.expose(), at(8)), None);
    state.remove("tokens.json").unwrap();
    assert_eq!(daemon.authenticate_at(bob.expose(), at(10)), None);
}

#[test]
fn the_local_token_is_made_once_and_again_after_it_was_revoked() {
    let (_root, state) = state();
    let tokens = Tokens::open(&state).unwrap();
    assert_eq!(tokens.ensure_local(1).unwrap(), state.file("token"));
    let first = clear(&state);
    assert_eq!(tokens.authenticate(&first), Some(Principal::local()));
    Tokens::open(&state).unwrap().ensure_local(2).unwrap();
    assert_eq!(clear(&state), first, "a restart keeps it");
    tokens.revoke(&Principal::local()).unwrap();
    assert_eq!((tokens.authenticate(&first), state.read(CLEAR).unwrap()), (None, None));
    tokens.ensure_local(3).unwrap();
    assert_ne!(clear(&state), first);
    // A clear token that nobody listed is not let in: it was revoked, or put there.
    state.write(CLEAR, b"cs_mine\n").unwrap();
    tokens.ensure_local(4).unwrap();
    assert_eq!(tokens.authenticate("cs_mine"), None);
    assert_eq!(tokens.authenticate(&clear(&state)), Some(Principal::local()));
    assert_eq!(tokens.list().unwrap(), [TokenInfo { name: Principal::local(), created_at: 4 }]);
}

#[test]
fn what_cannot_be_done_is_said() {
    let (_root, state) = state();
    let tokens = Tokens::open(&state).unwrap();
    tokens.create(&principal("ann"), 1).unwrap();
    let refused = |outcome: Result<Secret, TokenError>| outcome.unwrap_err().to_string();
    assert_eq!(refused(tokens.create(&principal("ann"), 1)), "`ann` has a token already");
    assert_eq!(
        refused(tokens.create(&Principal::local(), 1)),
        "`local` is the name of the token the daemon makes itself"
    );
    assert_eq!(tokens.revoke(&principal("bob")).unwrap_err().to_string(), "there is no token for `bob`");
    state.write("tokens.json", br#"{"tokens":[{"name":"../x","sha256":"","created_at":1}]}"#).unwrap();
    assert!(matches!(tokens.list(), Err(TokenError::State(StateError::Garbled { .. }))));
}

#[test]
fn commands_at_once_lose_nothing() {
    let (_root, state) = state();
    std::thread::scope(|scope| {
        for index in 0..8 {
            let state = &state;
            scope.spawn(move || {
                Tokens::open(state).unwrap().create(&principal(&format!("p{index}")), 1).unwrap()
            });
        }
    });
    assert_eq!(Tokens::open(&state).unwrap().list().unwrap().len(), 8);
}
