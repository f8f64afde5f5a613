// What is wrong with an input, and where: one line that names file, document, line and field.
import { Failure } from "../command-line/failure.ts";

export interface Place {
  /** As the user named it; `-` is standard input. */
  readonly file: string;
  /** From 1; absent when the fault is of the whole file. */
  readonly document?: number;
  /** From 1, counted in the file. */
  readonly line?: number;
  /** Dotted, such as `spec.ingress[0].protocol`. */
  readonly field?: string;
}

/** Nothing was written: inputs are read completely before the first write. */
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
