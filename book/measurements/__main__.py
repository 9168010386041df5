"""Make stored results anew: python -m book.measurements [NAME ...], all of them by default."""

import sys

from book import measurements


def main(names):
    measurements.load_all()
    known = measurements.MEASUREMENTS
    unknown = [name for name in names if name not in known]
    if unknown:
        print(__doc__)
        print("The results: " + ", ".join(known))
        if unknown[0] in ("-h", "--help"):
            return 0
        print(f"there is no result {unknown[0]}", file=sys.stderr)
        return 2
    for name in names or known:
        record = measurements.measure(name)
        print(f"book/measurements/{name}.json  {record['processor_seconds']:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
