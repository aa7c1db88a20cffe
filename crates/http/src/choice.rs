//! Which route a request has, where its path can be read in several ways.
//!
//! Nobody here knows how the API reads a path. Nearly every one takes `//payments` for `/payments`, so
//! that reading counts like the path itself. What only some take for it (another case, say) leads away
//! from a route only to a stricter one, by its mode or, in the same mode, by what a retry may do; and
//! from the route for everything to one of its own that is as strict.

use std::sync::Arc;

use http::Method;

use crate::Route;
use crate::spelling::{Likeness, odd, plain};

/// The route of a request. A path that a literal matches as it is spelt has no other.
pub(crate) fn choose<'a>(
    routes: &'a [Arc<Route>],
    method: &Method,
    path: &str,
) -> Option<&'a Arc<Route>> {
    let spelt = first(routes, method, path);
    if spelt.is_some_and(|route| route.pattern.is_literal()) {
        return spelt;
    }
    let usual = plain(path);
    // The usual reading has no slash at its end, but the paths of some routes do.
    let ended = usual.as_ref().filter(|_| path.ends_with('/'));
    let ended = ended.map(|usual| format!("{usual}/"));
    let mut chosen = usual.as_ref().map_or(spelt, |usual| {
        let route = first_usual(routes, method, usual, ended.as_deref());
        nearer(spelt, route, ended.as_deref() == Some(path))
    });
    let may_take_over = |other: &Arc<Route>| chosen.is_none_or(|chosen| takes_over(other, chosen));
    if !about(routes, method).any(may_take_over) {
        return chosen;
    }
    let mut consider = |other: &'a Arc<Route>| {
        if chosen.is_none_or(|chosen| takes_over(other, chosen)) {
            chosen = Some(other);
        }
    };
    let Some(odd) = odd(path) else {
        // Any route may be the one of some reading.
        about(routes, method).for_each(consider);
        return chosen;
    };
    for read in &odd {
        first(routes, method, read)
            .into_iter()
            .for_each(&mut consider);
    }
    // Some APIs add a slash at the end where their own paths have one.
    let may_end =
        ended.is_some() || about(routes, method).any(|route| route.pattern.ends_in_slash());
    let own = std::iter::once(path).chain(usual.as_deref());
    for read in own.chain(odd.iter().map(String::as_str)) {
        of_their_own(routes, method, read).for_each(&mut consider);
        if may_end && !read.ends_with('/') {
            of_their_own(routes, method, &format!("{read}/")).for_each(&mut consider);
        }
    }
    chosen
}

/// Whether a reading of some APIs decides.
fn takes_over(other: &Route, chosen: &Route) -> bool {
    let is_of_its_own = chosen.pattern.is_any() && !other.pattern.is_any();
    other.mode > chosen.mode
        || (other.mode == chosen.mode
            && !other.allows_more_than(chosen)
            && (is_of_its_own || chosen.allows_more_than(other)))
}

/// Of the routes of a path as it is spelt and as it is usually read the stricter; of equals the usual
/// one's, unless the path is spelt exactly as its route wants it.
fn nearer<'a>(
    spelt: Option<&'a Arc<Route>>,
    usual: Option<&'a Arc<Route>>,
    is_exact: bool,
) -> Option<&'a Arc<Route>> {
    let stays = |spelt: &&Arc<Route>| {
        let usual = usual.map(|route| route.mode);
        let is_exact = is_exact && spelt.pattern.ends_in_slash();
        Some(spelt.mode) > usual || (is_exact && Some(spelt.mode) == usual)
    };
    spelt.filter(stays).or(usual)
}

fn about<'a>(routes: &'a [Arc<Route>], method: &Method) -> impl Iterator<Item = &'a Arc<Route>> {
    routes.iter().filter(|route| route.is_about(method))
}

/// The first route whose paths are spelt like this one.
fn first<'a>(routes: &'a [Arc<Route>], method: &Method, path: &str) -> Option<&'a Arc<Route>> {
    about(routes, method).find(|route| route.pattern.matches(path))
}

/// The first route of a path that is usually read like this; for routes whose paths end in a slash, like
/// `ended`.
fn first_usual<'a>(
    routes: &'a [Arc<Route>],
    method: &Method,
    usual: &str,
    ended: Option<&str>,
) -> Option<&'a Arc<Route>> {
    let matches_ended = |route: &Route| {
        let ended = ended.filter(|_| route.pattern.ends_in_slash());
        ended.is_some_and(|path| route.pattern.matches(path))
    };
    about(routes, method).find(|route| route.pattern.matches(usual) || matches_ended(route))
}

/// The first route that is spelt like a path; and for each other spelling of it that some route has, the
/// first one that is spelt like that. Not the route for everything, which is spelt like any.
fn of_their_own<'a>(
    routes: &'a [Arc<Route>],
    method: &Method,
    path: &str,
) -> impl Iterator<Item = &'a Arc<Route>> {
    let alike = about(routes, method)
        .filter(move |route| route.pattern.likeness(path) == Some(Likeness::Alike))
        .filter_map(move |route| first(routes, method, &route.pattern.respelt(path)));
    let spelt = first(routes, method, path).into_iter();
    spelt.chain(alike).filter(|route| !route.pattern.is_any())
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
    fn of_two_guarded_readings_the_stricter_decides() {
        for rest in ["/{*rest}", "/{version}/{*rest}"] {
            let routes = [careful("/v1/payments"), enforced(rest)];
            for path in [
                "/v1/Payments",
                "/v1/payments/",
                "/v1/payments;v=1",
                "/v1\\payments",
            ] {
                assert_eq!(chosen(&routes, path), "/v1/payments", "{path}");
            }
            let routes = [careful("/v1/{shop}/orders"), enforced(rest)];
            assert_eq!(chosen(&routes, "/v1/1/Orders"), "/v1/{shop}/orders");
        }
    }

    /// Its caller and its scope are what tells tenants apart, whatever they are elsewhere.
    #[test]
    fn a_path_that_ends_as_its_route_does_keeps_it() {
        let off = |path| route(path, Mode::Off, true, Statuses::default());
        let caller = Caller::AwsAccessKey;
        let own = |path: &str| {
            let mut route = Route::clone(&enforced(path));
            route.caller = caller.clone();
            Arc::new(route)
        };
        let routes = [own("/orders/{id}/pay/"), enforced("/{*rest}")];
        for path in ["/orders/1/pay/", "//orders/1/pay/", "/orders/x/../1/pay//"] {
            assert_eq!(chosen(&routes, path), "/orders/{id}/pay/", "{path}");
        }
        let routes = [off("/hooks/{id}/"), enforced("/{*rest}")];
        assert_eq!(chosen(&routes, "/hooks/1/"), "/hooks/{id}/");
        assert_eq!(chosen(&routes, "/hooks/1"), "/{*rest}");
        assert_eq!(
            chosen(&routes, "//hooks/1/"),
            "/{*rest}",
            "as it is spelt it is guarded"
        );
        // Where it is laxer than one without the slash, an API may not mind the slash.
        for other in [
            off("/{a}/{b}/"),
            route("/{a}/{b}/", Mode::Enforce, false, Statuses::default()),
        ] {
            let routes = [other, enforced("/payments/{id}"), off("/{*rest}")];
            for path in ["/payments/1/", "//payments/1/"] {
                assert_eq!(chosen(&routes, path), "/payments/{id}", "{path}");
            }
        }
        for routes in [["/a/{id}/", "/a/{id}"], ["/a/{id}", "/a/{id}/"]] {
            let routes = routes.map(enforced);
            assert_eq!(chosen(&routes, "/a/1/"), "/a/{id}/");
            assert_eq!(chosen(&routes, "/a/1"), "/a/{id}");
        }
    }

    /// Readings are copies, and whoever sends a path decides how many there are.
    #[test]
    fn a_path_with_too_many_readings_has_the_strictest_route() {
        let off = route("/{*rest}", Mode::Off, true, Statuses::default());
        let routes = [enforced("/payments"), off];
        let long = "a".repeat(4096);
        assert_eq!(chosen(&routes, &format!("/{long}")), "/{*rest}");
        assert_eq!(chosen(&routes, &format!("/{long};")), "/payments");
    }

    #[test]
    fn a_reading_of_some_apis_takes_nothing_from_a_route_that_is_as_strict() {
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
    const SLASHES: [&str; 9] = [
        "/",
        "//",
        "/./",
        "/x/../",
        "\\",
        "%2F",
        "%5c",
        "/x;y/..;z/",
        "/x\\y%2F../../",
    ];
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
            for reading in odd(&path).unwrap_or_default() {
                let read = first(&routes, &Method::POST, &reading);
                prop_assert!(!is_laxer(found, read), "{:?} {:?}", found, reading);
            }
            if let Some(usual) = plain(&path) {
                let own = first(&routes, &Method::POST, &usual);
                let own = own.filter(|route| !route.pattern.is_any());
                let ended = path.ends_with('/').then(|| format!("{usual}/"));
                let usual = first_usual(&routes, &Method::POST, &usual, ended.as_deref());
                for read in [own, usual] {
                    prop_assert!(!is_laxer(found, read), "{:?} {:?}", found, read);
                }
            }
        }

        #[test]
        fn no_spelling_of_a_path_is_laxer_than_the_path(
            routes in routes(USUAL_NAMES),
            path in path(USUAL_PARTS),
            ways in vec(0..13_u8, 1..20),
            merges: bool,
        ) {
            let spelling = respelt(&path, &ways, merges);
            // A slash at the end may be a part of a route's paths.
            let end = if spelling.ends_with('/') && path != "/" { "/" } else { "" };
            let (one, other) = (
                choose(&routes, &Method::POST, &format!("{path}{end}")),
                choose(&routes, &Method::POST, &spelling),
            );
            prop_assert!(!is_laxer(other, one), "{}: {:?} {:?}", spelling, one, other);
        }
    }
}
