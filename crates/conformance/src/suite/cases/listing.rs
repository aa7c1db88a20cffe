//! What operators look at: the rows that match, and only those.

use onlyonce_core::{PrincipalDigest, Record, RecordId, RouteName, StateKind};
use onlyonce_store::{Filter, ListStore, Store};

use crate::suite::samples::{at, executing, id, record, state};
use crate::suite::{Handle, Harness, Setup};

/// Nothing is an answer.
pub async fn an_empty_store_lists_nothing<H: Harness>(setup: &Setup<H>) {
    let page = setup.open().await.page(&Filter::default(), None, 10).await;
    assert!(page.entries.is_empty());
    assert_eq!(page.next, None);
}

/// A list shows the row itself, so that an operator's next step expects what was seen.
pub async fn a_list_shows_every_row_as_a_load_does<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let rows = mixture();
    write(&store, &rows).await;
    let entries = store.pages(&Filter::default(), 1_000).await;
    assert_eq!(entries.len(), rows.len());
    for entry in entries {
        let row = entry.row.expect("a readable row");
        assert_eq!(store.load(&entry.id).await, Some(row));
    }
}

/// The order is that of the ids, or a cursor means nothing.
pub async fn a_list_is_in_the_order_of_ids<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    write(&store, &mixture()).await;
    let ids = store.ids(&Filter::default(), 1_000).await;
    assert!(ids.is_sorted());
    assert_eq!(ids.len(), mixture().len());
}

/// An operator who looks for dead letters must see every one, and who counts what is not settled,
/// all of it.
pub async fn each_state_can_be_listed_alone<H: Harness>(setup: &Setup<H>) {
    let alone = StateKind::ALL.map(|kind| Filter {
        state: Some(kind),
        ..Filter::default()
    });
    let unsettled = Filter {
        unsettled: true,
        ..Filter::default()
    };
    let both = Filter {
        state: Some(StateKind::Unknown),
        ..unsettled.clone()
    };
    let all = alone.into_iter().chain([unsettled, both]);
    for_each_filter(setup, all).await;
}

/// A name is a whole name, not a prefix or a pattern.
pub async fn a_route_can_be_listed_alone<H: Harness>(setup: &Setup<H>) {
    for_each_filter(
        setup,
        ROUTES.map(|name| Filter {
            route: RouteName::new(name),
            ..Filter::default()
        }),
    )
    .await;
}

/// One tenant's rows, and nobody else's.
pub async fn a_principal_can_be_listed_alone<H: Harness>(setup: &Setup<H>) {
    for_each_filter(
        setup,
        PRINCIPALS.map(|principal| Filter {
            principal: Some(PrincipalDigest::from_bytes(principal)),
            ..Filter::default()
        }),
    )
    .await;
}

/// Two reports that meet at midnight must count a row once: the start counts.
pub async fn updated_from_includes_its_own_millisecond<H: Harness>(setup: &Setup<H>) {
    for_each_filter(
        setup,
        [1_001, 1_010, 1_071].map(|from| Filter {
            updated_from: Some(at(from)),
            ..Filter::default()
        }),
    )
    .await;
}

/// The end does not count.
pub async fn updated_before_excludes_its_own_millisecond<H: Harness>(setup: &Setup<H>) {
    for_each_filter(
        setup,
        [1_001, 1_010, 1_071].map(|before| Filter {
            updated_before: Some(at(before)),
            ..Filter::default()
        }),
    )
    .await;
}

/// Every condition must hold, not one of them.
pub async fn conditions_are_combined<H: Harness>(setup: &Setup<H>) {
    let filters = StateKind::ALL.map(|kind| Filter {
        state: Some(kind),
        unsettled: false,
        route: RouteName::new(ROUTES[0]),
        principal: Some(PrincipalDigest::from_bytes(PRINCIPALS[1])),
        updated_from: Some(at(1_005)),
        updated_before: Some(at(1_100)),
    });
    for_each_filter(setup, filters).await;
}

/// No match is an empty list, not everything.
pub async fn a_filter_that_nothing_meets_lists_nothing<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    write(&store, &mixture()).await;
    let filters = [
        Filter {
            state: Some(StateKind::Completed),
            unsettled: true,
            ..Filter::default()
        },
        Filter {
            route: RouteName::new("nowhere"),
            ..Filter::default()
        },
        Filter {
            updated_from: Some(at(u64::MAX)),
            ..Filter::default()
        },
        Filter {
            updated_before: Some(at(0)),
            ..Filter::default()
        },
    ];
    for filter in filters {
        assert!(store.ids(&filter, 7).await.is_empty(), "{filter:?}");
    }
}

/// A settled key that still showed as unknown would be resolved twice.
pub async fn a_row_is_listed_under_its_present_state_only<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let mut version = store.put(&id(1), &executing(1, at(5_000))).await;
    for kind in StateKind::ALL {
        let next = record(1, state(kind, at(6_000)));
        version = store.replace(&id(1), version, &next).await;
        for listed in StateKind::ALL {
            let filter = Filter {
                state: Some(listed),
                ..Filter::default()
            };
            let found = !store.ids(&filter, 10).await.is_empty();
            assert_eq!(found, listed == kind, "{kind:?} listed as {listed:?}");
        }
        let filter = Filter {
            unsettled: true,
            ..Filter::default()
        };
        let found = !store.ids(&filter, 10).await.is_empty();
        assert_eq!(found, !kind.is_settled(), "{kind:?}");
    }
}

/// Forgotten means forgotten, also for operators.
pub async fn a_removed_row_is_not_listed<H: Harness>(setup: &Setup<H>) {
    let store = setup.open().await;
    let version = store.put(&id(1), &executing(1, at(5_000))).await;
    store.put(&id(2), &executing(2, at(5_000))).await;
    store.remove(&id(1), version).await;
    assert_eq!(store.ids(&Filter::default(), 10).await, [id(2)]);
}

const ROUTES: [&str; 4] = ["pay", "payments", "pay%", ""];
const PRINCIPALS: [[u8; 8]; 3] = [[0; 8], [0, 0, 0, 0, 0, 0, 0, 1], [0xff; 8]];

/// A row of every state, route and principal, each changed at another time.
pub(super) fn mixture() -> Vec<(RecordId, Record)> {
    let mut rows = Vec::new();
    for (number, kind) in (0_u8..).zip(StateKind::ALL.repeat(12)) {
        let mut row = record(number.into(), state(kind, at(5_000)));
        let step = usize::from(number) / StateKind::ALL.len();
        row.route = RouteName::new(ROUTES[step % ROUTES.len()]).expect("a short name");
        row.principal = PrincipalDigest::from_bytes(PRINCIPALS[step % PRINCIPALS.len()]);
        row.updated_at = at(1_000 + u64::from(number));
        rows.push((id(number.into()), row));
    }
    rows
}

pub(super) async fn write<S: Store + ListStore>(store: &Handle<S>, rows: &[(RecordId, Record)]) {
    for (id, row) in rows {
        store.put(id, row).await;
    }
}

/// Lists by each filter, and compares with what the port's own definition gives.
async fn for_each_filter<H: Harness>(
    setup: &Setup<H>,
    filters: impl IntoIterator<Item = Filter> + Clone,
) {
    let store = setup.open().await;
    let mut rows = mixture();
    write(&store, &rows).await;
    rows.sort_unstable_by_key(|(id, _)| *id);
    for filter in filters {
        let matching = rows.iter().filter(|(_, row)| filter.matches(row));
        let expected: Vec<_> = matching.map(|(id, _)| *id).collect();
        assert!(!expected.is_empty(), "the mixture has rows for {filter:?}");
        assert!(
            expected.len() < rows.len(),
            "and rows that {filter:?} leaves out"
        );
        assert_eq!(store.ids(&filter, 7).await, expected, "{filter:?}");
    }
}
