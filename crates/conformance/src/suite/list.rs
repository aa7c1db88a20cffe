//! The list of cases: the one place that names them all.
//!
//! A macro, because tests must be functions with names that a test runner can see. It hands the
//! list to another macro, which makes either tests or data of it.

/// Tests a store: every case becomes a test of its own, named `group::case`.
///
/// The argument is a [`Harness`](crate::Harness): the function that opens a store in a folder,
/// [`volatile(make)`](crate::volatile), or a value of a type that implements the trait. The
/// generated tests make their own runtime, so a test file needs nothing else:
///
/// ```no_run
/// use onlyonce_conformance::{store_suite, volatile};
/// use onlyonce_store::MemoryStore;
///
/// store_suite!(volatile(MemoryStore::new));
/// ```
///
/// To run the suite twice in one file, put each call in a module of its own.
#[macro_export]
macro_rules! store_suite {
    ($harness:expr $(,)?) => {
        $crate::__store_cases!(__store_tests, $harness);
    };
}

/// Makes a test of every case.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    (($harness:expr) $($group:ident: $needs:ident { $($case:ident,)+ })+) => {
        $(
            mod $group {
                #[allow(unused_imports, clippy::wildcard_imports, reason = "the harness")]
                use super::*;

                $(
                    #[test]
                    fn $case() {
                        $crate::suite::run($harness, stringify!($group), stringify!($case));
                    }
                )+
            }
        )+
    };
}

/// Makes a list of every case.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_list {
    (() $($group:ident: $needs:ident { $($case:ident,)+ })+) => {
        vec![$($(
            $crate::suite::Case {
                group: stringify!($group),
                name: stringify!($case),
                needs: $crate::suite::Needs::$needs,
                run: |setup| Box::pin($crate::suite::cases::$group::$case(setup)),
            },
        )+)+]
    };
}

/// Hands every case to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_cases {
    ($then:ident $(, $harness:expr)?) => {
        $crate::$then! {
            ($($harness)?)
            claim: Nothing {
                a_load_of_nothing_is_none,
                a_swap_that_expects_nothing_writes_the_row,
                a_swap_that_expects_nothing_loses_to_a_row,
                a_lost_swap_returns_the_row_and_its_version,
                a_lost_swap_changes_nothing,
                a_lost_removal_changes_nothing_and_returns_the_row,
                a_removal_that_expects_nothing_loses_to_a_row,
                a_removal_that_expects_nothing_wins_where_there_is_nothing,
                a_swap_that_expects_a_row_loses_to_nothing,
                a_removal_that_expects_a_row_loses_to_nothing,
                an_id_that_was_never_written_loses_to_nothing,
                a_removed_row_is_gone,
                a_removed_id_can_be_claimed_again,
                a_claim_is_renewed_completed_and_purged,
                rows_do_not_touch_each_other,
                a_row_past_its_deadline_is_still_there,
                the_profile_has_a_name_and_agrees_with_the_harness,
            }
            versions: Nothing {
                the_right_version_wins,
                a_stale_version_loses_to_the_newer_row,
                a_version_that_was_never_given_loses,
                a_loaded_version_is_the_one_that_the_swap_gave,
                a_swap_to_the_identical_record_makes_a_new_version,
                every_write_of_a_row_has_another_version,
                a_row_written_again_has_a_version_never_seen,
                an_old_version_never_matches_a_successor,
                the_version_of_a_removal_matches_nothing,
            }
            values: Nothing {
                every_state_comes_back_exactly,
                every_reason_for_not_knowing_comes_back,
                every_tombstone_comes_back,
                a_sealed_answer_comes_back,
                header_lines_keep_their_order_and_repeats,
                empty_and_binary_header_values_come_back,
                trailers_come_back,
                every_status_comes_back,
                a_body_of_every_byte_comes_back,
                an_empty_body_comes_back,
                a_body_of_1_kib_comes_back,
                a_body_of_64_kib_comes_back,
                a_body_of_1_mib_comes_back,
                a_body_of_4_mib_comes_back_or_is_refused_whole,
                a_lost_swap_returns_a_large_row_whole,
                a_large_row_gives_way_to_a_small_one_and_back,
                extreme_times_come_back,
                extreme_counts_come_back,
                every_route_name_comes_back,
                field_digests_come_back,
                a_swap_answers_won_or_lost_and_no_error,
            }
            identity: Nothing {
                ids_of_zeros_and_of_ones_are_ids,
                ids_that_look_like_separators_are_kept_apart,
                ids_that_differ_in_case_are_kept_apart,
                ids_that_share_a_prefix_are_kept_apart,
                ids_one_bit_apart_are_kept_apart,
                digests_and_fences_of_any_bytes_come_back,
            }
            deadlines: Nothing {
                nothing_is_due_in_an_empty_store,
                a_row_is_due_at_its_own_millisecond,
                a_row_is_not_due_a_millisecond_before,
                due_rows_come_earliest_first,
                rows_with_one_deadline_are_all_due,
                the_limit_takes_the_earliest,
                a_limit_of_zero_gives_nothing,
                asking_what_is_due_takes_nothing_away,
                a_later_deadline_replaces_the_old_one,
                an_earlier_deadline_replaces_the_old_one,
                a_removed_row_leaves_no_deadline,
                a_row_written_again_has_only_its_new_deadline,
                a_dead_letter_is_never_due,
                every_other_state_is_in_the_one_index,
                a_lost_swap_leaves_the_deadline_alone,
                deadlines_in_the_far_future_are_due_last,
                a_deadline_at_the_end_of_time_never_passes,
            }
            sweeping: Nothing {
                a_backlog_of_2000_rows_is_worked_off_page_by_page,
                rows_written_at_once_are_all_due,
                several_sweepers_process_each_row_once,
                a_purge_of_1000_rows_leaves_new_claims_alone,
            }
            listing: Nothing {
                an_empty_store_lists_nothing,
                a_list_shows_every_row_as_a_load_does,
                a_list_is_in_the_order_of_ids,
                each_state_can_be_listed_alone,
                a_route_can_be_listed_alone,
                a_principal_can_be_listed_alone,
                updated_from_includes_its_own_millisecond,
                updated_before_excludes_its_own_millisecond,
                conditions_are_combined,
                a_filter_that_nothing_meets_lists_nothing,
                a_row_is_listed_under_its_present_state_only,
                a_removed_row_is_not_listed,
            }
            paging: Nothing {
                pages_of_1_visit_every_row_once,
                pages_of_7_visit_every_row_once,
                pages_of_1000_visit_every_row_once,
                a_filtered_list_pages_like_any_other,
                a_page_has_at_most_its_limit,
                the_last_page_has_no_next,
                rows_inserted_meanwhile_disturb_no_page,
                rows_removed_meanwhile_disturb_no_page,
                rows_changed_meanwhile_are_on_one_page,
            }
            clock: Nothing {
                the_clock_never_goes_back,
                the_clock_never_goes_back_for_anybody,
                the_clock_counts_milliseconds_since_the_epoch,
                the_clock_advances,
            }
            secret: Nothing {
                the_first_candidate_is_kept,
                a_later_candidate_gets_the_first,
                a_secret_of_any_bytes_is_kept,
                sixteen_first_callers_agree,
                the_secret_is_neither_listed_nor_due,
            }
            concurrency: Nothing {
                of_64_claims_one_wins_and_the_others_get_its_row,
                increments_by_64_tasks_lose_nothing,
                claims_of_different_ids_all_win,
                a_load_sees_every_acknowledged_write,
                a_reader_never_sees_half_a_write,
                a_renewal_and_a_removal_never_both_win,
                a_key_that_is_claimed_and_evicted_has_one_holder,
                a_dropped_swap_leaves_the_old_row_or_the_new,
                a_dropped_claim_leaves_nothing_or_the_claim,
                dropped_reads_leave_the_store_usable,
            }
            durability: Reopening {
                an_empty_store_is_empty_when_opened_again,
                a_claim_survives,
                a_completion_survives_and_not_the_claim_before_it,
                every_state_survives,
                a_large_answer_survives,
                a_removal_survives,
                a_version_is_still_good_after_reopening,
                versions_never_return_after_reopening,
                versions_of_removed_rows_never_return_after_reopening,
                an_old_version_never_matches_after_reopening,
                deadlines_survive,
                old_deadlines_stay_gone,
                the_secret_survives,
                the_clock_is_not_earlier_after_reopening,
                a_list_is_the_same_after_reopening,
                every_one_of_2000_concurrent_writes_survives,
                rows_survive_many_reopenings,
            }
            sharing: Sharing {
                another_handle_sees_every_acknowledged_write,
                a_version_is_good_through_another_handle,
                of_claims_through_two_handles_one_wins,
                increments_through_two_handles_lose_nothing,
                two_handles_never_give_the_same_version,
                two_handles_agree_on_the_secret,
                the_clock_is_the_same_through_both_handles,
                a_closed_handle_leaves_the_other_working,
            }
        }
    };
}
