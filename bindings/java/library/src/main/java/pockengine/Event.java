package pockengine;

/** An event of a training. */
public final class Event {
    /** Kinds of events, in the order of pe_event_kind. */
    public enum Kind {
        /** A step was completed: its loss, rate and time. */
        STEPPED,
        /** A checkpoint was written: its path. */
        SAVED,
        /** The training continues after the step of a checkpoint: its path. */
        RESUMED,
        /** A loss was not finite: the last checkpoint was restored; the message says why. */
        ROLLED_BACK,
        /** A damaged checkpoint was skipped: its path and the reason. */
        UNSOUND,
        /** The next step is about to begin. */
        READY
    }

    private final Kind kind;
    private final long step;
    private final float loss;
    private final float rate;
    private final long nanoseconds;
    private final String path;
    private final String message;

    Event(int kind, long step, float[] numbers, long nanoseconds, String path, String message) {
        this.kind = Kind.values()[kind];
        this.step = step;
        this.loss = numbers[0];
        this.rate = numbers[1];
        this.nanoseconds = nanoseconds;
        this.path = path;
        this.message = message;
    }

    /** Returns the kind of the event. */
    public Kind kind() {
        return kind;
    }

    /** Returns the number of the step; the first is 1. */
    public long step() {
        return step;
    }

    /** Returns the loss of the step; NaN if the program has none. */
    public float loss() {
        return loss;
    }

    /** Returns the learning rate of the step. */
    public float rate() {
        return rate;
    }

    /** Returns the duration of the step, without reading its data. */
    public long nanoseconds() {
        return nanoseconds;
    }

    /** Returns the path of a checkpoint; null if the event has none. */
    public String path() {
        return path;
    }

    /** Returns the reason; null if the event has none. */
    public String message() {
        return message;
    }
}
