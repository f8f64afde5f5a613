// Parses Kubernetes quantities (`10M`, `1.5Gi`, `100m`, `2e3`) as integers, rounded up.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/

const SCALE: Readonly<Record<string, number>> = {
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  "": 1,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** Returns undefined if the text is not a quantity. */
export function parseQuantity(text: string): number | undefined {
  // Each digit can match only one part of the pattern; otherwise matching a long annotation would take quadratic time.
  const [, number, exponent, suffix] =
    /^([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?$/.exec(text) ?? [];
  if (number === undefined) return undefined;
  const value = Number(`${number}${exponent ?? ""}`) * (SCALE[suffix ?? ""] ?? 1);
  return Number.isFinite(value) ? Math.ceil(Number(value.toPrecision(15))) : undefined;
}
