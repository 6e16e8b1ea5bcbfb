"""Result files of benchmarks and responses of engines."""
