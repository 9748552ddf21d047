package org.example.train;

import android.app.Activity;
import android.os.Bundle;
import android.widget.Button;

/** A button that schedules the training. */
public final class MainActivity extends Activity {
    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        final Button button = new Button(this);
        button.setText("Train while charging");
        button.setOnClickListener(view -> {
            TrainWorker.schedule(this);
            button.setText("It trains when the phone charges");
        });
        setContentView(button);
    }
}
