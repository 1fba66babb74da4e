"""What runs inside an ordinal process: a pytest item, or a callable."""
