//! The list of cases: the one place that names them all.

/// Tests whatever guards an HTTP endpoint: every case becomes a test of its own, named
/// `group::case`.
///
/// The argument is a function, `async fn() -> Target`, that starts a guard with the
/// [default configuration](mod@crate::http_suite) in front of a new
/// [`Upstream`](crate::http_suite::Upstream):
///
/// ```no_run
/// use onlyonce_conformance::http_suite;
/// use onlyonce_conformance::http_suite::{Target, Upstream};
///
/// async fn start() -> Target {
///     let upstream = Upstream::new();
///     let behind = upstream.serve().await;
///     let guard = start_a_guard_in_front_of(behind).await;
///     Target::new(guard, upstream)
/// }
/// # async fn start_a_guard_in_front_of(it: std::net::SocketAddr) -> std::net::SocketAddr { it }
///
/// http_suite!(start);
/// ```
///
/// The generated tests make their own runtime, so a test file needs nothing else.
#[macro_export]
macro_rules! http_suite {
    ($start:expr $(,)?) => {
        $crate::__http_cases!(__http_tests, $start);
    };
}

/// Makes a test of every case.
#[doc(hidden)]
#[macro_export]
macro_rules! __http_tests {
    (($start:expr) $($group:ident { $($case:ident,)+ })+) => {
        $(
            mod $group {
                #[allow(unused_imports, clippy::wildcard_imports, reason = "the start")]
                use super::*;

                $(
                    #[test]
                    fn $case() {
                        $crate::http_suite::run($start, stringify!($group), stringify!($case));
                    }
                )+
            }
        )+
    };
}

/// Makes a list of every case.
#[doc(hidden)]
#[macro_export]
macro_rules! __http_list {
    (() $($group:ident { $($case:ident,)+ })+) => {
        vec![$($(
            $crate::http_suite::Case {
                group: stringify!($group),
                name: stringify!($case),
                run: |api| Box::pin($crate::http_suite::cases::$group::$case(api)),
            },
        )+)+]
    };
}

/// Hands every case to another macro of this crate.
#[doc(hidden)]
#[macro_export]
macro_rules! __http_cases {
    ($then:ident $(, $start:expr)?) => {
        $crate::$then! {
            ($($start)?)
            replay {
                a_new_key_executes_once_and_a_retry_gets_the_first_answer,
                the_fiftieth_retry_gets_the_first_answer_too,
                two_keys_are_two_operations,
                repeated_header_lines_keep_their_order,
                a_cookie_is_given_once,
                a_stored_retry_after_is_not_given_again,
                fields_of_the_connection_are_not_given_again,
                a_binary_body_comes_back_byte_for_byte,
                a_body_of_exactly_1_mib_comes_back,
                an_empty_answer_comes_back,
                trailers_come_back,
                a_redirect_comes_back,
                the_marker_is_on_replays_once,
            }
            keys {
                a_missing_key_is_refused,
                an_empty_key_is_refused,
                a_key_sent_twice_is_refused,
                a_malformed_key_is_refused_and_not_ignored,
                a_quoted_key_and_the_bare_one_are_the_same,
                bare_uuids_are_keys_whatever_they_begin_with,
                a_key_has_at_most_255_characters,
                keys_that_differ_in_case_are_two_keys,
                the_key_reaches_the_upstream,
            }
            scope {
                two_callers_never_share_a_key,
                a_caller_without_a_name_is_not_one_with_a_name,
                a_caller_with_two_names_is_refused,
                the_same_key_on_another_path_is_another_operation,
                a_path_spelt_otherwise_is_never_answered_for_this_one,
                the_same_key_with_another_method_is_another_operation,
                a_patch_is_guarded,
                a_get_passes_with_a_key_and_without,
                a_put_and_a_delete_pass,
            }
            payload {
                another_payload_is_refused_and_the_difference_named,
                a_refused_payload_leaves_the_first_answer_alone,
                member_order_and_white_space_do_not_matter,
                numbers_beyond_double_precision_are_told_apart,
                duplicate_members_are_not_dropped,
                null_is_not_absent,
                another_query_is_another_payload,
                another_precondition_is_another_payload,
                other_bytes_are_another_payload,
                a_multipart_retry_with_a_new_boundary_is_a_retry,
                a_body_above_1_mib_is_refused,
                an_announced_giant_is_refused_before_it_is_sent,
            }
            outcomes {
                a_declined_payment_is_stored,
                a_conflict_is_stored,
                an_internal_error_is_stored,
                an_accepted_job_is_stored,
                a_validation_failure_frees_the_key,
                a_missing_permission_frees_the_key,
                a_rate_limit_frees_the_key,
                an_unavailable_service_is_asked_again,
                a_bad_gateway_is_unknown,
                a_timeout_is_unknown,
                the_upstream_may_say_completed,
                the_upstream_may_say_released,
                the_upstream_may_say_not_stored,
                the_upstream_may_say_unknown,
                a_misspelt_outcome_is_unknown,
                the_outcome_header_is_never_seen,
            }
            faults {
                a_crash_of_the_upstream_is_unknown_and_never_run_again,
                a_torn_answer_is_unknown_and_never_run_again,
                an_answer_shorter_than_announced_is_unknown,
                a_caller_that_leaves_cancels_nothing,
                a_caller_that_leaves_in_the_middle_of_its_request_executes_nothing,
                a_chunked_request_without_its_end_executes_nothing,
                an_oversized_answer_arrives_whole_and_is_not_run_again,
                a_stream_passes_live_and_is_not_run_again,
                a_partial_answer_is_not_replayed,
            }
            concurrency {
                of_64_requests_with_one_key_one_executes,
                keys_do_not_wait_for_each_other,
                callers_with_the_same_key_do_not_wait_for_each_other,
                a_retry_in_flight_is_told_to_come_back,
                not_everybody_is_told_the_same_second,
                another_payload_is_refused_also_in_flight,
                an_operation_is_shown_to_its_owner_alone,
            }
            problems {
                every_problem_has_every_member,
                every_occurrence_has_its_own_number,
                no_problem_repeats_the_key,
                an_unknown_outcome_leads_to_its_operation,
                a_refused_body_is_never_read_as_a_request,
            }
        }
    };
}
