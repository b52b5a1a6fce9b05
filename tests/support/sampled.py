"""How many cases of an expensive test run every day; the others are long.

The README's line has to end within five minutes. Each test below takes a third of a second or more with all its cases
(databases, formats, kinds of damage, moments of a kill): it runs this number of them every day, and all of them in the
long level.
"""

from typing import Final

EVERYDAY_CASES: Final = {
    # of catalog/test_catalog_aliases:
    "test_of_racing_swaps_from_one_version_exactly_one_wins_each_round": 1,
    # of catalog/test_catalog_backup:
    "test_a_backup_of_an_older_schema_is_restored_and_upgraded": 2,
    "test_a_row_that_does_not_fit_is_refused_with_its_line": 2,
    "test_tables_that_do_not_fit_are_refused": 2,
    # of catalog/test_catalog_between:
    "test_a_number_that_a_rival_takes_meanwhile_is_decided_by_its_unique_row": 2,
    "test_an_action_between_any_two_statements_of_another_leaves_what_one_after_the_other_does": 1,
    "test_a_row_that_appears_during_an_action_is_seen_completely_or_not_at_all": 1,
    # of catalog/test_catalog_crowd:
    "test_a_crowd_loses_nothing_and_meets_typed_conflicts_only": 1,
    "test_a_crowd_whose_processes_and_connections_are_killed_leaves_nothing_half_done": 1,
    # of catalog/test_catalog_history:
    "test_the_past_standing_of_a_moment_is_the_standing_recorded_at_that_moment": 1,
    # of catalog/test_catalog_kept_answers:
    "test_an_answer_that_is_lost_after_the_commit_is_given_again": 4,
    "test_every_call_has_the_same_result_and_one_effect": 4,
    # of catalog/test_catalog_lifecycle:
    "test_of_many_who_yank_at_once_one_does_it": 1,
    # of catalog/test_catalog_log_verify:
    "test_an_override_that_the_build_did_not_have_is_found": 1,
    "test_changed_events_are_found": 5,
    "test_changed_rows_are_found": 6,
    "test_many_faults_are_counted_and_the_first_of_them_kept": 1,
    # of catalog/test_catalog_lookup:
    "test_many_shards_keep_their_order": 1,
    "test_the_default_config_moves": 1,
    # of catalog/test_catalog_opening:
    "test_a_serialization_failure_or_deadlock_is_tried_again_a_few_times": 2,
    "test_network_file_systems_are_recognized_by_their_mounts": 1_000,
    # of catalog/test_catalog_pins:
    "test_other_content_under_a_pinned_number_is_reported": 1,
    # of catalog/test_catalog_protection:
    "test_a_catalog_that_was_taken_back_and_up_again_is_protected_as_before": 1,
    # of catalog/test_catalog_publish:
    "test_shards_are_written_in_batches_without_loss": 1,
    # of catalog/test_catalog_races:
    "test_a_publisher_killed_inside_its_transaction_leaves_nothing": 1,
    "test_a_waiting_rival_continues_when_the_first_publisher_is_killed": 1,
    "test_an_upgrade_killed_in_the_middle_leaves_the_schema_as_it_was": 1,
    "test_of_racing_publishers_exactly_one_wins_each_number": 1,
    "test_processes_that_upgrade_at_once_all_succeed": 1,
    "test_publishers_of_different_data_all_succeed": 1,
    # of catalog/test_catalog_schema:
    "test_a_populated_catalog_of_every_older_schema_is_upgraded": 1,
    "test_check_finds_what_was_changed_on_postgresql": 4,
    # of catalog/test_catalog_search:
    "test_case_accents_and_endings_do_not_matter": 8,
    "test_search_has_no_special_characters": 10,
    # of catalog/test_catalog_search_documents:
    "test_a_description_of_any_size_is_published_and_found_by_its_beginning": 1,
    # of catalog/test_catalog_search_schema:
    "test_check_finds_what_is_missing_of_the_search_on_postgresql": 3,
    "test_documents_that_are_not_what_is_published_are_found_and_mended": 1,
    "test_many_documents_out_of_date_are_one_line": 1,
    # of catalog/test_catalog_secrets:
    "test_no_file_of_an_sqlite_catalog_holds_them_any_more": 1,
    "test_published_rows_are_as_immutable_as_before": 1,
    # of catalog/test_catalog_standing:
    "test_a_look_up_costs_the_same_among_very_many_versions": 3,
    "test_sql_finds_what_the_rule_chooses": 1,
    # of catalog/test_catalog_stored_costs:
    "test_a_split_unlike_what_statistics_say_is_sliced_as_cheaply": 1,
    "test_planning_a_slice_reads_as_little_of_many_shards_as_of_few": 1,
    "test_the_files_of_a_wide_slice_are_read_in_few_queries": 1,
    # of catalog/test_catalog_stored_damage:
    "test_damaged_rows_are_an_error_of_the_catalog": 10,
    "test_whatever_is_asked_of_damaged_rows_is_answered_right_or_refused": 5,
    # of catalog/test_catalog_stored_lengths:
    "test_shards_keep_their_order_however_their_rows_lie": 1,
    "test_slices_of_stored_lengths_are_those_of_lengths_in_memory": 1,
    "test_stored_lengths_answer_as_those_in_memory": 1,
    # of cli/test_cli_commands:
    "test_completion_offers_commands_datasets_and_splits": 1,
    # of cli/test_cli_errors:
    "test_an_output_that_takes_nothing_costs_no_traceback": 1,
    # of cli/test_cli_faults:
    "test_a_full_disk_is_said": 2,
    "test_a_missing_permission_is_said": 3,
    # of cli/test_cli_network:
    "test_an_endpoint_that_is_not_there": 1,
    "test_an_endpoint_that_is_silent": 1,
    "test_ctrl_c_ends_a_command_whose_store_is_silent": 1,
    # of cli/test_cli_ordinary_faults:
    "test_a_server_that_does_not_answer": 5,
    # of cli/test_cli_pin_help:
    "test_completion_offers_verbs_and_pins": 1,
    # of cli/test_cli_secrets:
    "test_no_command_prints_a_secret": 12,
    # of cli/test_cli_split:
    "test_a_reader_who_leaves_does_not_make_a_proof_hold": 1,
    # of cli/test_cli_transcripts, all of them:
    "test_transcript": 1_000,
    # of cli/test_cli_verify_all:
    "test_ctrl_c_keeps_the_results_so_far": 1,
    # of conformance/frozen/test_frozen:
    "test_a_catalog_of_an_earlier_schema_answers_as_before_once_it_is_upgraded": 1,
    # of conformance/prepared/test_prepared_by_tfds:
    "test_a_block_of_records_decodes_to_what_tfds_read": 1,
    # of end_to_end/test_build_dataset:
    "test_a_disk_that_takes_no_more_is_a_storage_error": 1,
    # of end_to_end/test_build_encoding:
    "test_a_worker_that_dies_ends_the_build_with_a_typed_error": 1,
    # of end_to_end/test_custom_metadata:
    "test_a_metadata_file_of_another_form_stays_a_file": 3,
    "test_show_tells_of_it": 1,
    # of end_to_end/test_documents:
    "test_the_blocks_of_python_print_what_they_say": 1,
    "test_the_lines_of_shell_print_what_they_say": 1,
    # of end_to_end/test_frameworks_epochs:
    "test_processes_share_the_count": 1,
    # of end_to_end/test_frameworks_tables:
    "test_a_reader_goes_to_another_process_with_its_seed_and_its_place": 1,
    # of end_to_end/test_import_tfds:
    "test_an_import_that_was_killed_is_finished_by_the_next_one": 1,
    # of end_to_end/test_killed_commands:
    "test_the_next_run_removes_what_a_killed_one_left": 1,
    # of end_to_end/test_mirrors:
    "test_every_way_of_reading_takes_the_file_of_a_mirror_where_it_is_wrong_or_missing": 3,
    # of end_to_end/test_pin_alone:
    "test_every_verb_works": 1,
    # of end_to_end/test_pin_consent:
    "test_a_redirect_is_checked_against_the_consent": 6,
    # of end_to_end/test_pin_restore:
    "test_a_silent_server_times_out": 2,
    # of end_to_end/test_pin_verifiers:
    "test_they_agree_on_every_flipped_byte_of_the_data": 1,
    # of end_to_end/test_publish_faults:
    "test_a_build_writes_the_files_if_only_the_catalog_is_shared": 1,
    "test_a_damaged_version_is_rebuilt_in_its_place": 1,
    "test_a_folder_of_other_code_is_not_taken_for_this_build": 1,
    "test_a_folder_that_no_row_describes_is_not_overwritten": 1,
    "test_a_losing_publisher_never_removes_files_of_the_winner": 1,
    "test_a_version_that_the_catalog_cannot_store_leaves_no_folder": 1,
    "test_a_full_disk_during_a_build_leaves_no_files": 1,
    "test_a_killed_build_publishes_nothing_and_a_second_run_finishes": 1,
    "test_of_many_that_repair_a_damaged_folder_one_does": 1,
    "test_one_of_two_publishers_into_one_folder_wins_and_the_other_gets_an_error": 1,
    "test_one_of_two_publishers_of_different_content_wins_and_the_other_gets_an_error": 1,
    "test_different_content_under_a_used_number_is_refused_and_changes_nothing": 1,
    "test_publishers_of_the_same_content_all_succeed_once": 1,
    "test_publishing_removes_the_files_of_a_killed_publisher": 1,
    # of end_to_end/test_publish_faults_on_objects:
    "test_a_publish_that_was_killed_at_any_step_never_stops_the_next_one": 1,
    "test_one_fault_at_any_request_is_typed_and_the_next_run_finishes": 1,
    # of end_to_end/test_publish_on_objects:
    "test_a_refused_publisher_removes_no_files_that_others_may_need": 1,
    "test_objects_that_were_imported_in_place_under_another_name_stay": 1,
    # of end_to_end/test_publish_races_on_objects:
    "test_between_any_two_steps_a_rival_of_other_content_wins_or_loses_whole": 2,
    # of end_to_end/test_resume_after_kill:
    "test_every_record_is_seen_exactly_once": 1,
    # of end_to_end/test_shard_formats_published:
    "test_the_order_is_that_of_tfds": 1,
    # of end_to_end/test_slim_digits:
    "test_digits_are_provided_once_an_epoch": 4,
    # of end_to_end/test_slim_faults:
    "test_a_corrupt_record_in_the_middle_is_named": 1,
    "test_a_hanging_reader_does_not_keep_the_process_alive": 1,
    "test_a_reader_that_raises_in_the_middle_of_a_file": 1,
    "test_a_truncated_gzip_file_is_named": 1,
    "test_another_compression_is_named": 1,
    "test_control_c_while_waiting_ends_the_process": 1,
    "test_sound_files_are_read_to_their_end": 1,
    # of end_to_end/test_sql:
    "test_a_query_decodes_the_columns_that_it_needs": 4,
    # of end_to_end/test_statistics_matrix:
    "test_statistics_equal_brute_force_in_any_order_by_any_workers_of_any_engine": 2,
    # of end_to_end/test_version_proof:
    "test_a_concurrent_version_that_makes_the_number_too_small_is_reported_with_the_record": 1,
    "test_a_publisher_killed_while_it_computes_the_proof_leaves_nothing_visible": 1,
    "test_an_older_version_is_fingerprinted_when_it_is_needed": 1,
    "test_an_older_version_is_not_fingerprinted_from_files_that_were_changed": 1,
    "test_concurrent_publishers_of_neighbouring_numbers_cannot_bypass_the_proof": 1,
    "test_the_very_same_shards_need_no_fingerprints_of_an_older_version": 1,
    "test_what_older_software_published_is_not_refused_afterwards": 1,
    "test_without_its_files_an_older_version_allows_a_major_number_only": 1,
    # of end_to_end/test_versioning_document:
    "test_a_flag_is_known_in_worker_processes": 1,
    "test_the_same_rules_hold_with_and_without_configs": 2,
    # of end_to_end/test_wrong_files:
    "test_a_pin_is_not_read_from_a_wrong_file": 2,
    "test_no_way_of_reading_hands_out_a_record_of_a_wrong_file": 4,
    "test_who_publishes_hashes_for_all_later_readers": 1,
    "test_who_verifies_hashes_for_all_later_readers": 1,
    # of end_to_end/test_wrong_objects:
    "test_an_object_that_is_replaced_before_the_row_is_written_is_not_read": 1,
    "test_no_way_of_reading_hands_out_a_record_of_a_wrong_object": 1,
    "test_without_the_right_etag_an_object_is_hashed_once_on_this_machine": 1,
    # of engines/test_engine_behaviour and engines/engine_laws:
    "test_a_dead_worker_raises_a_typed_error_for_its_piece_and_is_replaced": 3,
    "test_an_error_is_raised_at_the_position_of_its_piece": 1,
    "test_ctrl_c_ends_an_engine": 4,
    "test_no_worker_outlives_a_program_that_is_interrupted_or_killed": 2,
    # of property/test_catalog_url_laws:
    "test_no_command_prints_the_password_of_a_catalog": 6,
    # of property/test_damaged_sources:
    "test_a_file_cut_at_any_place_is_stored_or_refused": 18,
    "test_every_delimiter_is_used_or_refused": 1,
    "test_odd_archives_are_stored_or_refused": 4,
    "test_odd_json_is_stored_or_refused": 20,
    # of property/test_declared_lengths:
    "test_a_length_that_is_none_is_no_constraint": 2,
    "test_a_row_of_another_length_is_refused": 6,
    # of property/test_frame_laws:
    "test_a_frame_comes_out_as_it_went_in": 2,
    # of property/test_media_laws:
    "test_an_odd_file_in_a_column_of_hugging_face_makes_it_bytes": 3,
    "test_archives_hold_files_of_every_format_with_labels": 2,
    "test_columns_of_files_of_every_format_are_read_back": 4,
    "test_folders_of_different_formats_may_be_splits": 2,
    # of property/test_mutated_files:
    "test_a_file_that_once_gave_an_untyped_error": 1,
    # of property/test_one_law:
    "test_a_key_that_is_null_in_every_object_of_a_list_stays_in_the_schema": 4,
    "test_same_rows_same_version": 4,
    # of property/test_pin_digest_laws:
    "test_thousands_of_records_have_the_same_digests_whichever_process_hashes_them": 1,
    # of property/test_proof_laws:
    "test_processes_do_not_change_a_fingerprint": 1,
    # of property/test_resume_laws:
    "test_a_view_continues_at_the_place_of_its_reader": 3,
    # of property/test_secret_laws:
    "test_no_command_prints_the_password_of_an_argument": 12,
    "test_no_error_of_a_call_contains_the_password_of_its_argument": 4,
    # of property/test_splits_grammar:
    "test_a_megabyte_ends_in_a_value_or_a_syntax_error": 4,
    # of property/test_sql_laws:
    "test_a_filter_gives_the_rows_of_a_table_of_duckdb": 1,
    "test_blocks_that_no_row_can_pass_are_not_read": 3,
    # of property/test_standard_types:
    "test_every_value_of_the_standard_library_is_stored_or_refused": 5,
    # of property/test_statistics_duplicates:
    "test_similar_records_have_different_digests_that_do_not_depend_on_their_neighbours": 4,
    # of property/test_statistics_laws:
    "test_blocks_of_many_floats_of_32_bits_are_counted_like_small_blocks": 6,
    "test_many_distinct_numbers_have_the_stated_errors_for_any_division": 3,
    "test_sums_of_many_floats_are_exact": 3,
    # of server/test_rights, each call with each kind of token:
    "test_a_dataset_of_others_looks_like_none": 20,
    "test_each_role_may_make_the_calls_of_its_line": 1_000,
    "test_nobody_without_a_valid_token_may_make_a_call": 1_000,
    # of server and pages, all of them: each case is another attack, and takes a few hundredths of a second
    "test_a_binding_that_gives_rights_to_everybody_is_refused": 1_000,
    "test_a_file_without_usable_headers_is_an_error_of_storage": 1_000,
    "test_a_malformed_fault_in_a_stream_is_an_error_of_the_registry": 1_000,
    "test_a_malformed_list_of_files_is_an_error_of_storage": 1_000,
    "test_a_malformed_list_of_issuers_is_an_error_of_the_registry": 1_000,
    "test_a_malformed_offer_is_an_error_of_storage": 1_000,
    "test_a_malformed_request_is_refused": 1_000,
    "test_a_moment_that_has_no_utc_is_refused": 1_000,
    "test_a_publisher_names_only_places_in_the_folder_of_its_dataset": 1_000,
    "test_a_service_elsewhere_does_not_choose_a_folder_of_the_client": 1_000,
    "test_a_service_leads_the_browser_only_to_encrypted_pages": 1_000,
    "test_a_sign_in_leads_to_no_other_host": 1_000,
    "test_a_wrong_id_token_is_refused": 1_000,
    "test_a_wrong_key_of_the_issuer_is_not_used": 1_000,
    "test_a_wrong_value_is_refused_with_its_line": 1_000,
    "test_an_address_that_is_not_public_is_not_contacted": 1_000,
    "test_an_address_without_the_secret_shows_nothing": 1_000,
    "test_an_answer_that_is_too_deep_is_an_error_of_the_registry": 1_000,
    "test_no_file_is_sent_to_a_url_that_is_not_safe": 1_000,
    "test_nobody_sees_a_page_without_a_session": 1_000,
    "test_other_hosts_and_sites_are_refused": 1_000,
    # of storage/test_store_faults (some also of storage/test_http_faults and storage/test_store_ranges):
    "test_a_fault_that_passes_is_not_noticed": 2,
    "test_a_fault_that_stays_is_a_typed_error_after_three_requests": 2,
    "test_one_fault_at_any_request_of_a_large_upload_is_not_noticed": 1,
    # of storage/test_store_ranges:
    "test_ranges_are_slices": 1,
    # of unit/test_building_sorter:
    "test_the_order_does_not_depend_on_the_available_memory": 3,
    # of unit/test_earth_engine_geotiff:
    "test_a_full_disk_is_reported_and_leaves_no_files": 1,
    "test_a_process_killed_half_way_leaves_no_partial_file": 1,
    # of unit/test_earth_engine_replacing:
    "test_an_invalid_or_false_commit_note_changes_nothing": 5,
    "test_what_a_process_began_to_replace_and_died_is_ended_by_the_next": 3,
    # of unit/test_features_fold:
    "test_parts_that_are_merged_give_the_result_of_the_whole": 2,
    # of unit/test_features_image:
    "test_a_batch_of_images_is_its_images_one_by_one": 3,
    # of unit/test_image_decoding:
    "test_a_reader_decodes_few_images_ahead_if_they_are_much_larger_than_their_files": 1,
    "test_a_small_image_before_large_ones_does_not_make_the_reader_decode_many_ahead": 1,
    # of unit/test_import_cost:
    "test_adding_a_file_to_a_new_catalog_loads_neither_pandas_nor_alembic": 1,
    # of unit/test_intake_json:
    "test_a_table_in_one_object_is_never_one_row_in_silence": 4,
    # of unit/test_intake_key_candidates:
    "test_every_kind_of_source_suggests_it_once": 1,
    # of unit/test_intake_webdataset:
    "test_tars_of_any_compression_are_read_in_order": 2,
    # of unit/test_order_permutation:
    "test_every_number_is_equally_likely_at_every_place_and_after_every_other": 1,
    "test_every_permutation_of_few_items_is_equally_likely": 1,
    # of unit/test_parquet_bombs:
    "test_a_description_a_walk_and_a_fingerprint_take_little_memory": 1,
    # of unit/test_pin_bombs:
    "test_a_hostile_file_of_a_megabyte_takes_less_than_500_megabytes": 1,
    # of unit/test_pin_citation:
    "test_a_long_text_is_refused_at_once": 1,
    # of unit/test_shard_faults:
    "test_every_flipped_bit_is_detected_and_its_record_named": 1,
    "test_every_flipped_bit_of_records_of_one_length_is_caught": 1,
    "test_without_verify_every_flipped_bit_of_a_length_is_caught_all_the_same": 1,
    # of unit/test_slim_parallel_reader:
    "test_no_more_records_are_held_than_the_capacity": 3,
    # of unit/test_slim_provider_life:
    "test_a_caller_that_waits_for_a_hanging_reader_gets_an_error_when_it_is_closed": 1,
    # of unit/test_statistics_rows:
    "test_texts_with_few_values_are_categories": 3,
    # of unit/test_tfrecord_faults:
    "test_a_flipped_bit_anywhere": 1,
    "test_a_flipped_bit_anywhere_in_a_gzip_file_is_found_or_changes_nothing": 1,
}
