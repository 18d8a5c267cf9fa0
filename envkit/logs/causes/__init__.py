"""What is known of each domain: functions that read a story and yield hypotheses."""
