module @jit_recurrence attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x6x32xf32>, %arg1: tensor<32x32xf32>, %arg2: tensor<32x32xf32>, %arg3: tensor<4x32xf32>) -> (tensor<4x32xf32> {jax.result_info = "result[0]"}, tensor<4x6x32xf32> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x6x32xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %1:7 = stablehlo.while(%iterArg = %arg0, %iterArg_1 = %arg1, %iterArg_2 = %arg2, %iterArg_3 = %c_0, %iterArg_4 = %c, %iterArg_5 = %arg3, %iterArg_6 = %0) : tensor<4x6x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<i32>, tensor<i32>, tensor<4x32xf32>, tensor<4x6x32xf32>
    cond {
      %c_7 = stablehlo.constant dense<6> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg_3, %c_7, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2:3 = func.call @closed_call(%iterArg, %iterArg_1, %iterArg_2, %iterArg_4, %iterArg_5, %iterArg_6) : (tensor<4x6x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<i32>, tensor<4x32xf32>, tensor<4x6x32xf32>) -> (tensor<i32>, tensor<4x32xf32>, tensor<4x6x32xf32>)
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %3 = stablehlo.add %iterArg_3, %c_7 : tensor<i32>
      stablehlo.return %iterArg, %iterArg_1, %iterArg_2, %3, %2#0, %2#1, %2#2 : tensor<4x6x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>, tensor<i32>, tensor<i32>, tensor<4x32xf32>, tensor<4x6x32xf32>
    }
    return %1#5, %1#6 : tensor<4x32xf32>, tensor<4x6x32xf32>
  }
  func.func private @closed_call(%arg0: tensor<4x6x32xf32>, %arg1: tensor<32x32xf32>, %arg2: tensor<32x32xf32>, %arg3: tensor<i32>, %arg4: tensor<4x32xf32>, %arg5: tensor<4x6x32xf32>) -> (tensor<i32>, tensor<4x32xf32>, tensor<4x6x32xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.add %arg3, %c : tensor<i32>
    %1 = stablehlo.convert %arg3 : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %2 = stablehlo.compare LT, %c_0, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %c_3 = stablehlo.constant dense<4> : tensor<i32>
    %3 = stablehlo.add %c_2, %c_3 : tensor<i32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %4 = stablehlo.select %2, %3, %c_4 : tensor<i1>, tensor<i32>
    %c_5 = stablehlo.constant dense<0> : tensor<i32>
    %5 = stablehlo.compare LT, %1, %c_5, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_6 = stablehlo.constant dense<6> : tensor<i32>
    %6 = stablehlo.add %1, %c_6 : tensor<i32>
    %7 = stablehlo.select %5, %6, %1 : tensor<i1>, tensor<i32>
    %c_7 = stablehlo.constant dense<0> : tensor<i32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %8 = stablehlo.compare LT, %c_7, %c_8, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_9 = stablehlo.constant dense<0> : tensor<i32>
    %c_10 = stablehlo.constant dense<32> : tensor<i32>
    %9 = stablehlo.add %c_9, %c_10 : tensor<i32>
    %c_11 = stablehlo.constant dense<0> : tensor<i32>
    %10 = stablehlo.select %8, %9, %c_11 : tensor<i1>, tensor<i32>
    %11 = stablehlo.dynamic_slice %arg0, %4, %7, %10, sizes = [4, 1, 32] : (tensor<4x6x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x1x32xf32>
    %12 = stablehlo.reshape %11 : (tensor<4x1x32xf32>) -> tensor<4x32xf32>
    %13 = stablehlo.dot_general %12, %arg1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
    %14 = stablehlo.dot_general %arg4, %arg2, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x32xf32>, tensor<32x32xf32>) -> tensor<4x32xf32>
    %15 = stablehlo.add %13, %14 : tensor<4x32xf32>
    %16 = stablehlo.negate %15 : tensor<4x32xf32>
    %17 = stablehlo.exponential %16 : tensor<4x32xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %18 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x32xf32>
    %19 = stablehlo.add %18, %17 : tensor<4x32xf32>
    %cst_12 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %20 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<4x32xf32>
    %21 = stablehlo.divide %20, %19 : tensor<4x32xf32>
    %cst_13 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %22 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<4x32xf32>
    %23 = stablehlo.subtract %22, %21 : tensor<4x32xf32>
    %24 = stablehlo.multiply %23, %arg4 : tensor<4x32xf32>
    %25 = stablehlo.convert %arg3 : tensor<i32>
    %c_14 = stablehlo.constant dense<0> : tensor<i32>
    %c_15 = stablehlo.constant dense<0> : tensor<i32>
    %26 = stablehlo.compare LT, %c_14, %c_15, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_16 = stablehlo.constant dense<0> : tensor<i32>
    %c_17 = stablehlo.constant dense<4> : tensor<i32>
    %27 = stablehlo.add %c_16, %c_17 : tensor<i32>
    %c_18 = stablehlo.constant dense<0> : tensor<i32>
    %28 = stablehlo.select %26, %27, %c_18 : tensor<i1>, tensor<i32>
    %c_19 = stablehlo.constant dense<0> : tensor<i32>
    %29 = stablehlo.compare LT, %25, %c_19, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_20 = stablehlo.constant dense<6> : tensor<i32>
    %30 = stablehlo.add %25, %c_20 : tensor<i32>
    %31 = stablehlo.select %29, %30, %25 : tensor<i1>, tensor<i32>
    %c_21 = stablehlo.constant dense<0> : tensor<i32>
    %c_22 = stablehlo.constant dense<0> : tensor<i32>
    %32 = stablehlo.compare LT, %c_21, %c_22, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_23 = stablehlo.constant dense<0> : tensor<i32>
    %c_24 = stablehlo.constant dense<32> : tensor<i32>
    %33 = stablehlo.add %c_23, %c_24 : tensor<i32>
    %c_25 = stablehlo.constant dense<0> : tensor<i32>
    %34 = stablehlo.select %32, %33, %c_25 : tensor<i1>, tensor<i32>
    %35 = stablehlo.dynamic_slice %arg0, %28, %31, %34, sizes = [4, 1, 32] : (tensor<4x6x32xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x1x32xf32>
    %36 = stablehlo.reshape %35 : (tensor<4x1x32xf32>) -> tensor<4x32xf32>
    %37 = stablehlo.tanh %36 : tensor<4x32xf32>
    %38 = stablehlo.multiply %21, %37 : tensor<4x32xf32>
    %39 = stablehlo.add %24, %38 : tensor<4x32xf32>
    %c_26 = stablehlo.constant dense<0> : tensor<i32>
    %40 = stablehlo.compare LT, %arg3, %c_26, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_27 = stablehlo.constant dense<6> : tensor<i32>
    %41 = stablehlo.add %arg3, %c_27 : tensor<i32>
    %42 = stablehlo.select %40, %41, %arg3 : tensor<i1>, tensor<i32>
    %43 = stablehlo.convert %42 : tensor<i32>
    %44 = stablehlo.broadcast_in_dim %43, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %45 = "stablehlo.scatter"(%arg5, %44, %39) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0, 1], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1]>, unique_indices = true}> ({
    ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
      stablehlo.return %arg7 : tensor<f32>
    }) : (tensor<4x6x32xf32>, tensor<1xi32>, tensor<4x32xf32>) -> tensor<4x6x32xf32>
    return %0, %39, %45 : tensor<i32>, tensor<4x32xf32>, tensor<4x6x32xf32>
  }
}
