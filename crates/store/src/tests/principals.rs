//! Two principals see nothing of each other.

use super::leases::dump;
use super::*;

/// The port's own text: a method that is added there has to be tried here.
const PORT: &str = include_str!("../../../model/src/ports/store.rs");

/// Methods of a trait, with all that stands between their names and the next.
fn methods(of: &str) -> Vec<(&'static str, &'static str)> {
    let body = PORT.split_once(&format!("pub trait {of}: Send + Sync {{\n")).unwrap().1;
    let body = body.split_once("\n}\n").unwrap().0;
    body.split("    fn ").skip(1).map(|method| method.split_once('(').unwrap()).collect()
}

#[tokio::test]
async fn nothing_of_one_principal_is_there_for_another() {
    let state = quick_directory();
    let store = open(state.path()).await;
    let mallory = Principal::new("mallory").unwrap();
    let CreateOutcome::Created(session) =
        store.create_or_reuse(&alice(), wanted(Some("key")), at(1)).await.unwrap()
    else {
        panic!("there is none yet")
    };
    let session = session.id;
    let running = submit(&store, &alice(), keyed(&session, "key", "secret")).await;
    let queued = submit(&store, &alice(), task(&session, "secret")).await;
    let owner = owner(&store, TakeOver::Everybody).await;
    let lease = lease(&store, &session, &owner).await;
    next(&store, &lease).await;
    let artifact = Artifact { path: "x".to_owned(), kind: ArtifactKind::Record, size: 1, modified: at(1) };
    store.record_artifacts(&lease, &running.id, vec![artifact]).await.unwrap();
    let before = dump(&store).await;
    let mut tried = Vec::new();
    for (method, rest) in methods("Store") {
        assert!(rest.contains("principal: &Principal"), "{method} is for nobody in particular");
        match method {
            "create_or_reuse" => {
                let made = store.create_or_reuse(&mallory, wanted(Some("key")), at(1)).await.unwrap();
                assert!(
                    matches!(made, CreateOutcome::Created(made) if made.id != session),
                    "a key is one's own"
                );
            }
            "session" => assert_eq!(store.session(&mallory, &session).await.unwrap(), None),
            "list_sessions" => {
                for listed in [Listed::Live, Listed::All] {
                    let list = store.list_sessions(&mallory, listed, Page::default()).await.unwrap();
                    assert!(
                        list.iter().all(|row| row.session.principal == mallory && row.session.id != session)
                    );
                    let after = Page { after: Some(SessionId::new(stamp())), limit: 10 };
                    let list = store.list_sessions(&mallory, listed, after).await.unwrap();
                    assert!(list.iter().all(|row| row.session.principal == mallory));
                }
            }
            "terminate" => {
                let outcome = store.terminate(&mallory, &session, Keep::Nothing, at(1)).await.unwrap();
                assert_eq!(outcome, TerminateOutcome::NoSession);
            }
            "submit" => {
                for run in
                    [task(&session, "x"), keyed(&session, "key", "secret"), keyed(&session, "key", "x")]
                {
                    assert_eq!(store.submit(&mallory, run, at(1)).await.unwrap(), SubmitOutcome::NoSession);
                }
            }
            "run" => assert_eq!(store.run(&mallory, &running.id).await.unwrap(), None),
            "latest_run" => assert_eq!(store.latest_run(&mallory, &session).await.unwrap(), None),
            "list_runs" => {
                assert_eq!(store.list_runs(&mallory, &session, Page::default()).await.unwrap(), []);
            }
            "request_cancel" => {
                for run in [&running.id, &queued.id] {
                    let outcome =
                        store.request_cancel(&mallory, run, CanceledBy::Caller, at(1)).await.unwrap();
                    assert_eq!(outcome, CancelOutcome::NoRun);
                }
            }
            "artifacts" => {
                for run in [None, Some(&running.id)] {
                    assert_eq!(store.artifacts(&mallory, &session, run).await.unwrap(), []);
                }
            }
            other => panic!("{other} is not tried here"),
        }
        assert_eq!(dump(&store).await, before, "{method}");
        tried.push(method);
    }
    assert_eq!(tried.len(), 10, "{tried:?}");
    // What is for the scheduler alone is not for somebody who acts for a principal.
    assert!(methods("StoreForScheduler").iter().all(|(_, rest)| !rest.contains("principal: &Principal")));
}
