package pockengine;

import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * Trains a session step by step, with checkpoints. Settings are made before {@link #train}, which
 * blocks until the last step; listeners and data are called on its thread.
 */
public final class Trainer {
    /** Kinds of learning-rate schedules, in the order of pe_schedule_kind. */
    public enum Schedule { CONSTANT, LINEAR, COSINE }

    /** Writes the batch of a step, of which the first is 1, into the buffers of the inputs. */
    public interface Batches {
        /** Fills all buffers from their start. An exception ends the training. */
        void read(long step, Map<String, ByteBuffer> inputs) throws Exception;
    }

    /** Receives events. */
    public interface Listener {
        /** Returns false to end the training: after this step, or before it for READY. */
        boolean onEvent(Event event);
    }

    private final Session session;
    private final long[] schedule = new long[3];
    private double rate = Double.NaN;
    private long seed;
    private long until;
    private long saveEvery;
    private int keep = 3;
    private String checkpoints;
    private boolean rollBack;
    private Listener listener = event -> true;

    private volatile boolean stopped;
    private boolean resumed;
    private Batches batches;
    private Map<String, ByteBuffer> inputs = Collections.emptyMap();

    /** A trainer of an open session, which stays the caller's. */
    public Trainer(Session session) {
        this.session = session;
    }

    /** Sets the highest learning rate, at least 0. */
    public Trainer rate(double value) {
        if (!(value >= 0) || Double.isInfinite(value)) {
            throw new IllegalArgumentException("the rate is " + value + "; give one of at least 0");
        }
        rate = value;
        return this;
    }

    /** Sets the schedule: the rate rises over `warmup` updates and falls until `total`. */
    public Trainer schedule(Schedule kind, long warmup, long total) {
        if (warmup < 0 || total < warmup) {
            throw new IllegalArgumentException(
                    "a warm-up of " + warmup + " of " + total + " updates; it is a part of them");
        }
        schedule[0] = kind.ordinal();
        schedule[1] = warmup;
        schedule[2] = total;
        return this;
    }

    /** Sets the seed of random numbers, such as dropout's; a checkpoint has its own. */
    public Trainer seed(int value) {
        seed = value & 0xFFFFFFFFL;
        return this;
    }

    /** Sets the number of the last step. */
    public Trainer until(long step) {
        if (step < 1) {
            throw new IllegalArgumentException("the last step is " + step + "; the first is 1");
        }
        until = step;
        return this;
    }

    /** Saves a checkpoint every `every` steps, at the end, and when the training is stopped. */
    public Trainer checkpoints(String folder, long every, int newest) {
        if (every < 0 || newest < 1) {
            throw new IllegalArgumentException(
                    "a checkpoint every " + every + " steps, the newest " + newest
                            + " kept; give at least 0 and 1");
        }
        if (folder.isEmpty()) {
            throw new IllegalArgumentException("the folder of checkpoints has no name; give a path");
        }
        checkpoints = folder.endsWith("/") ? folder : folder + "/";
        saveEvery = every;
        keep = newest;
        return this;
    }

    /** If a loss is not finite, continues from the last checkpoint with the next batch. */
    public Trainer rollBack(boolean value) {
        rollBack = value;
        return this;
    }

    /** Sets the listener of events. */
    public Trainer listener(Listener value) {
        listener = value;
        return this;
    }

    /**
     * Loads the newest valid checkpoint; returns false if there is none. With it come the seed of its
     * training, and its schedule and rate if it had a schedule, in place of those set here.
     */
    public boolean resume() {
        if (checkpoints == null) {
            throw new IllegalStateException("there is no folder to resume from: call checkpoints()");
        }
        final boolean[] found = new boolean[1];
        session.use("resuming", handle ->
                found[0] = Natives.resume(handle, Natives.text(checkpoints), keep));
        resumed = found[0];
        return resumed;
    }

    /** Ends a training after its current step; from any thread, even before it starts. */
    public void stop() {
        stopped = true;
    }

    /**
     * Trains from the session's progress until the last step. Returns whether it came there: false
     * if it was stopped.
     *
     * @throws Exception what `data` threw; else IllegalStateException, IllegalArgumentException or
     *     {@link PockEngineException}
     */
    public boolean train(Batches data) throws Exception {
        if (Double.isNaN(rate) || until == 0) {
            throw new IllegalStateException(
                    "the training has no rate or no last step: call rate() and until()");
        }
        final List<Tensor> tensors = session.program().entry("train").inputs();
        final Map<String, ByteBuffer> buffers = session.newInputs("train");
        final ByteBuffer[] ordered = Session.match("train", "input", tensors, buffers);
        final byte[] place = checkpoints == null ? null : Natives.text(checkpoints);
        try {
            session.use("training", handle -> {
                batches = data;
                inputs = Collections.unmodifiableMap(buffers);
                Natives.schedule(handle, rate, schedule, seed, resumed);
                final long[] numbers = {until, saveEvery, keep};
                Natives.train(handle, this, ordered, place, numbers, rollBack);
            });
        } finally {
            stopped = false;
        }
        return session.steps() >= until;
    }

    /** Called by C: fills the buffers for a step. */
    private void read(long step) throws Exception {
        for (ByteBuffer buffer : inputs.values()) {
            buffer.clear();
        }
        batches.read(step, inputs);
    }

    /** Called by C: returns whether the training continues. */
    private boolean event(
            int kind, long step, float[] numbers, long nanoseconds, byte[] path, byte[] message) {
        final Event event = new Event(
                kind, step, numbers, nanoseconds, Natives.string(path), Natives.string(message));
        return listener.onEvent(event) && !stopped;
    }
}
