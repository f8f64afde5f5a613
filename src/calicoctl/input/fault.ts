// Defines the error of an invalid input: one line with file, document, line and field.
import { Failure } from "../command-line/failure.ts";

export interface Place {
  /** As given by the user; `-` is standard input. */
  readonly file: string;
  /** Counted from 1; absent if the error concerns the whole file. */
  readonly document?: number;
  /** Counted from 1 in the whole file. */
  readonly line?: number;
  /** A path such as `spec.ingress[0].protocol`. */
  readonly field?: string;
}

/** Thrown before the first write, because inputs are read completely first. */
export class InputFault extends Failure {
  constructor(
    readonly place: Place,
    readonly reason: string,
    options?: ErrorOptions,
  ) {
    super(`Failed to execute command: ${describePlace(place)}: ${reason}`, options);
  }
}

export function describePlace(place: Place): string {
  const parts = [
    ...(place.document === undefined ? [] : [`document ${place.document}`]),
    ...(place.line === undefined ? [] : [`line ${place.line}`]),
  ];
  const file = place.file === "-" ? "standard input" : place.file;
  const where = parts.length === 0 ? file : `${file}: ${parts.join(", ")}`;
  return place.field === undefined ? where : `${where}: ${place.field}`;
}
