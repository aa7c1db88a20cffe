//! Which route a request has, where its path can be read in several ways.
//!
//! Nobody here knows how the API reads a path. Nearly every one takes `//payments` for `/payments`, so
//! that reading counts like the path itself. What only some take for it (another case, say) leads away
//! from a route in two cases: to one whose mode is stricter, and from the route for everything to one
//! with a path of its own under which the key is the same and no retry may do more.

use std::sync::Arc;

use http::Method;

use crate::Route;
use crate::spelling::{Likeness, Reading, readings};

/// The route of a request. A path that a literal matches as it is spelt has no other, and nothing
/// is allocated for a path with one reading.
pub(crate) fn choose<'a>(
    routes: &'a [Arc<Route>],
    method: &Method,
    path: &str,
) -> Option<&'a Arc<Route>> {
    let mut odd = Vec::new();
    let spelt = read(&mut odd, routes, method, path);
    if spelt.is_some_and(|route| route.pattern.is_literal()) {
        return spelt;
    }
    let mut chosen = spelt;
    for Reading { path, usual } in readings(path) {
        match read(&mut odd, routes, method, &path) {
            Some(route) if usual => {
                // Of equals the usual spelling's.
                chosen = chosen
                    .filter(|chosen| chosen.mode > route.mode)
                    .or(Some(route));
            }
            route => odd.extend(route),
        }
    }
    odd.into_iter().fold(chosen, |chosen, other| {
        chosen
            .filter(|chosen| !takes_over(other, chosen))
            .or(Some(other))
    })
}

/// Whether a reading of some APIs decides.
fn takes_over(other: &Route, chosen: &Route) -> bool {
    let is_of_its_own = chosen.pattern.is_any() && !other.pattern.is_any();
    other.mode > chosen.mode
        || (other.mode == chosen.mode && is_of_its_own && !other.allows_more_than(chosen))
}

/// The first route whose paths are spelt like this one. Besides, for each other spelling of it that
/// some route has, the first that is spelt like that.
fn read<'a>(
    others: &mut Vec<&'a Arc<Route>>,
    routes: &'a [Arc<Route>],
    method: &Method,
    path: &str,
) -> Option<&'a Arc<Route>> {
    let mut spelt = None;
    for route in routes.iter().filter(|route| route.is_about(method)) {
        match route.pattern.likeness(path) {
            Some(Likeness::Spelt) if spelt.is_none() => {
                spelt = Some(route);
                if route.pattern.is_literal() {
                    break;
                }
            }
            Some(Likeness::Spelt) | None => {}
            Some(Likeness::Decoded | Likeness::Folded | Likeness::Unended) => {
                others.extend(first(routes, method, &route.pattern.respelt(path)));
            }
        }
    }
    spelt
}

fn first<'a>(routes: &'a [Arc<Route>], method: &Method, path: &str) -> Option<&'a Arc<Route>> {
    routes
        .iter()
        .find(|route| route.is_about(method) && route.pattern.matches(path))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onlyonce_core::{Policy, PolicyBuilder, RouteName, ScopeParts, Upstream};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::{Caller, Compare, Mode, Pattern, Settle, Statuses};

    const MODES: [Mode; 3] = [Mode::Off, Mode::Observe, Mode::Enforce];

    fn route(path: &str, mode: Mode, required: bool, statuses: Statuses) -> Arc<Route> {
        let pattern = Pattern::parse(path).unwrap();
        let name = RouteName::new(path).unwrap();
        let mut route = Route::new(name, [Method::POST], pattern);
        route.mode = mode;
        route.key.required = required;
        route.statuses = statuses;
        Arc::new(route)
    }

    fn enforced(path: &str) -> Arc<Route> {
        route(path, Mode::Enforce, true, Statuses::default())
    }

    fn careful(path: &str) -> Arc<Route> {
        let statuses = Statuses::default().set(503..=503, Settle::Unknown);
        route(path, Mode::Enforce, true, statuses)
    }

    /// `/reports`, but for one choice.
    fn with_route(change: impl FnOnce(&mut Route)) -> Arc<Route> {
        let mut route = enforced("/reports");
        change(Arc::make_mut(&mut route));
        route
    }

    fn with(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Arc<Route> {
        let policy = change(Policy::builder()).build().unwrap();
        with_route(|route| route.policy = policy)
    }

    fn chosen(routes: &[Arc<Route>], path: &str) -> String {
        let route = choose(routes, &Method::POST, path).unwrap();
        route.name.to_string()
    }

    /// With the settings of the rest, a 503 after the effect would let the retry run again.
    #[test]
    fn of_two_guarded_readings_the_path_of_its_own_comes_before_the_rest() {
        let routes = [careful("/payments"), enforced("/{*rest}")];
        for path in ["/Payments", "/payments/", "/payments;v=1", "/\\payments"] {
            assert_eq!(chosen(&routes, path), "/payments", "{path}");
        }
        let routes = [enforced("/{shop}/orders"), enforced("/{*rest}")];
        assert_eq!(chosen(&routes, "/1/Orders"), "/{shop}/orders");
    }

    #[test]
    fn a_reading_of_some_apis_takes_nothing_from_a_route_with_a_path_of_its_own() {
        let routes = [
            enforced("/files/new"),
            enforced("/files/a/b"),
            enforced("/files/{id}"),
        ];
        for path in ["/files/NEW", "/files/a%2Fb", "/files/new;1"] {
            assert_eq!(chosen(&routes, path), "/files/{id}", "{path}");
        }
    }

    #[test]
    fn a_laxer_route_takes_nothing_from_a_stricter_one() {
        let rest = enforced("/{*rest}");
        let released = Statuses::default().set(500..=599, Settle::Released);
        let optional = route("/reports", Mode::Enforce, false, Statuses::default());
        let retried = route("/reports", Mode::Enforce, true, released);
        for lax in [
            route("/reports", Mode::Off, true, Statuses::default()),
            route("/reports", Mode::Observe, true, Statuses::default()),
            Arc::clone(&optional),
            Arc::clone(&retried),
            with(|policy| policy.retention(Duration::from_secs(60))),
            with(|policy| policy.upstream(Upstream::Dedupes { reexecute: false })),
            with(|policy| {
                policy.scope(ScopeParts {
                    principal: false,
                    ..ScopeParts::default()
                })
            }),
            with_route(|route| route.compare = Compare::KeyOnly),
            with_route(|route| route.caller = Caller::AwsAccessKey),
        ] {
            let routes = [lax, Arc::clone(&rest)];
            for path in ["/Reports", "/reports;v=1", "/reports%2F"] {
                assert_eq!(chosen(&routes, path), "/{*rest}", "{path} {:?}", routes[0]);
            }
            assert_eq!(chosen(&routes, "/reports"), "/reports");
        }
        // A usual reading is the route's own, with whatever is set there: caller and scope, too.
        for guarded in [optional, retried] {
            let routes = [guarded, Arc::clone(&rest)];
            for path in ["/reports/", "//reports", "/%72eports"] {
                assert_eq!(chosen(&routes, path), "/reports", "{path} {:?}", routes[0]);
            }
        }
    }

    /// What comes later for the path as the API reads it, comes later for every spelling of it.
    #[test]
    fn a_spelling_leads_to_no_route_that_its_own_spelling_never_reaches() {
        let off = |path| route(path, Mode::Off, true, Statuses::default());
        let routes = [
            off("/search/{id}"),
            enforced("/search/new"),
            off("/{*rest}"),
        ];
        for path in ["/search/new", "/Search/new", "/Search/NEW", "//search/new/"] {
            assert_eq!(chosen(&routes, path), "/search/{id}", "{path}");
        }
    }

    fn statuses() -> impl Strategy<Value = Statuses> {
        let table = Statuses::default;
        select(vec![
            table(),
            table().set(503..=503, Settle::Unknown),
            table().set(500..=599, Settle::Released),
            table().set(404..=404, Settle::Completed),
        ])
    }

    fn routes(segments: &'static [&'static str]) -> impl Strategy<Value = Vec<Arc<Route>>> {
        let ends = select(&["", "/", "/{*rest}"][..]);
        let path = (vec(select(segments), 0..3), ends)
            .prop_map(|(segments, end)| format!("/{}{end}", segments.join("/")))
            .prop_filter("no pattern", |path| Pattern::parse(path).is_ok());
        let one = (path, select(&MODES[..]), any::<bool>(), statuses());
        let one = one.prop_map(|(path, mode, required, table)| route(&path, mode, required, table));
        vec(one, 1..6)
    }

    fn path(segments: &'static [&'static str]) -> impl Strategy<Value = String> {
        vec(select(segments), 0..4).prop_map(|segments| format!("/{}", segments.join("/")))
    }

    fn is_laxer(route: Option<&Arc<Route>>, than: Option<&Arc<Route>>) -> bool {
        than.is_some_and(|than| route.is_none_or(|route| route.mode < than.mode))
    }

    const ANY_NAMES: &[&str] = &["a", "A", "a%3Ab", "%C3%89", "a;b", "{x}"];
    const ANY_PARTS: &[&str] = &[
        "", "..", "a", "A", "%61", "a:b", "%C3%A9", "É", "a;b", "a%2FA", "\\a", "a%3Bb", "%",
    ];
    const USUAL_NAMES: &[&str] = &["a", "b", "a:b", "é", "{x}"];
    const USUAL_PARTS: &[&str] = &["a", "b", "a:b", "é", "x"];

    /// What some API takes for a slash. Empty segments are gone before dots are resolved, or kept.
    const SLASHES: [&str; 8] = ["/", "//", "/./", "/x/../", "\\", "%2F", "%5c", "/x;y/..;z/"];
    const SLASHES_MERGED: [&str; 2] = ["/x//../", "/x/y///..//../"];
    const SLASHES_KEPT: [&str; 2] = ["//../x/../", "/x//../../"];

    /// One way to write a character of a path, or what comes before and after a segment.
    fn respelt(path: &str, ways: &[u8], merges: bool) -> String {
        let mut ways = ways.iter().copied().cycle();
        let mut respelt = String::new();
        let own = if merges { SLASHES_MERGED } else { SLASHES_KEPT };
        let slashes: Vec<_> = SLASHES.into_iter().chain(own).collect();
        for part in path.split('/').skip(1) {
            let way = usize::from(ways.next().unwrap_or_default());
            respelt.push_str(slashes.get(way).unwrap_or(&"/"));
            for character in part.chars() {
                match ways.next() {
                    Some(0) => {
                        let bytes = character.to_string().into_bytes();
                        respelt.extend(bytes.iter().map(|byte| format!("%{byte:02x}")));
                    }
                    Some(1) => respelt.extend(character.to_uppercase()),
                    _ => respelt.push(character),
                }
            }
            let end = ["/", ";v=1", ";"];
            let way = usize::from(ways.next().unwrap_or_default());
            respelt.push_str(end.get(way).unwrap_or(&""));
        }
        respelt
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_reading_makes_a_request_laxer(routes in routes(ANY_NAMES), path in path(ANY_PARTS)) {
            let spelt = first(&routes, &Method::POST, &path);
            let found = choose(&routes, &Method::POST, &path);
            if let Some(spelt) = spelt.filter(|route| route.pattern.is_literal()) {
                prop_assert!(Arc::ptr_eq(spelt, found.unwrap()));
                return Ok(());
            }
            prop_assert!(!is_laxer(found, spelt), "{:?}", found);
            for reading in readings(&path) {
                let read = first(&routes, &Method::POST, &reading.path);
                prop_assert!(!is_laxer(found, read), "{:?} {:?}", found, reading);
            }
        }

        #[test]
        fn no_spelling_of_a_path_is_laxer_than_the_path(
            routes in routes(USUAL_NAMES),
            path in path(USUAL_PARTS),
            ways in vec(0..12_u8, 1..20),
            merges: bool,
        ) {
            let spelling = respelt(&path, &ways, merges);
            let (one, other) = (
                choose(&routes, &Method::POST, &path),
                choose(&routes, &Method::POST, &spelling),
            );
            prop_assert!(!is_laxer(other, one), "{}: {:?} {:?}", spelling, one, other);
        }
    }
}
