"""Draw jobs, trees and maps on a terminal."""
