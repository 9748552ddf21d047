package org.example.train;

import android.content.Context;
import android.os.Build;
import android.os.PowerManager;
import android.util.Log;
import androidx.work.Constraints;
import androidx.work.Data;
import androidx.work.ExistingWorkPolicy;
import androidx.work.OneTimeWorkRequest;
import androidx.work.WorkManager;
import androidx.work.Worker;
import androidx.work.WorkerParameters;
import java.io.File;
import java.io.IOException;
import pockengine.Event;
import pockengine.Program;
import pockengine.Session;
import pockengine.Trainer;

/**
 * Trains in the background: while the phone charges, and as long as it is not hot. It continues from
 * its last checkpoint when Android starts it again.
 */
public final class TrainWorker extends Worker {
    static final String NAME = "train";
    static final String STEP = "step";
    static final String LOSS = "loss";
    private static final int STEPS = 1000;
    private static final int THREADS = 4;
    private static final String WEIGHTS = "weights.safetensors";

    private volatile Trainer trainer;

    public TrainWorker(Context context, WorkerParameters parameters) {
        super(context, parameters);
    }

    /** Asks Android to train when it may; once, however often it is asked. */
    static void schedule(Context context) {
        final Constraints charging = new Constraints.Builder()
                .setRequiresCharging(true)
                .setRequiresBatteryNotLow(true)
                .setRequiresStorageNotLow(true)
                .build();
        final OneTimeWorkRequest request =
                new OneTimeWorkRequest.Builder(TrainWorker.class).setConstraints(charging).build();
        WorkManager.getInstance(context)
                .enqueueUniqueWork(NAME, ExistingWorkPolicy.KEEP, request);
    }

    @Override
    public Result doWork() {
        try {
            return train(modelFolder()) ? Result.success() : Result.retry();
        } catch (Exception error) {
            Log.e(NAME, "the training failed", error);
            return Result.failure();
        }
    }

    /** Trains from the last checkpoint; returns whether the last step is done. */
    private boolean train(ModelFolder model) throws Exception {
        final String program = Program.names().get(0);
        try (Session session = Session.open(program, model.weights().getPath(), THREADS)) {
            final Trainer training = new Trainer(session)
                    .rate(0.05)
                    .until(STEPS)
                    .checkpoints(model.checkpoints().getPath(), 20, 2)
                    .rollBack(true)
                    .listener(this::onEvent);
            training.resume();
            trainer = training;
            return !isStopped() && training.train(new Samples(session.program()));
        }
    }

    /** Called by Android when a constraint no longer holds: the step in progress is the last. */
    @Override
    public void onStopped() {
        final Trainer training = trainer;
        if (training != null) {
            training.stop();
        }
    }

    private boolean onEvent(Event event) {
        if (event.kind() == Event.Kind.STEPPED) {
            setProgressAsync(new Data.Builder()
                    .putLong(STEP, event.step())
                    .putFloat(LOSS, event.loss())
                    .build());
        }
        return !isHot();
    }

    private boolean isHot() {
        if (Build.VERSION.SDK_INT < 29) {
            return false;
        }
        final PowerManager power = (PowerManager)
                getApplicationContext().getSystemService(Context.POWER_SERVICE);
        return power.getCurrentThermalStatus() >= PowerManager.THERMAL_STATUS_MODERATE;
    }

    private ModelFolder modelFolder() throws IOException {
        final Context context = getApplicationContext();
        final File parent = new File(context.getFilesDir(), "models");
        return ModelFolder.in(parent, () -> context.getAssets().open(WEIGHTS));
    }
}
